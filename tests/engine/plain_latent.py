"""Denoising of embeddings by the papers' loops: one row, every prediction in a list."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from raydiff.diffusion import rounding, solvers
from raydiff.diffusion.gaussian import Level, clean, level_at
from raydiff.models.denoiser import LatentDenoiser
from raydiff.request import Decoding


class PlainLoop:
    """Reference for the latent runner; `given` are clean tokens by their offsets."""

    def __init__(
        self,
        denoiser: LatentDenoiser,
        prompt: tuple[int, ...],
        decoding: Decoding,
        given: Mapping[int, int],
    ) -> None:
        assert decoding.seed is not None
        self.denoiser, self.d, self.given = denoiser, decoding, given
        self.prompt = torch.tensor(prompt)[None]
        self.seen = torch.ones_like(self.prompt, dtype=torch.bool)
        self.rng = np.random.Generator(np.random.Philox(decoding.seed))
        self.table = denoiser.table().float()

    def tokens(self) -> list[int]:
        """The rounded tokens after the last step."""
        assert self.d.steps is not None
        x = self.normal()
        past: list[tuple[Tensor, Tensor, Level]] = []
        for step in range(self.d.steps):
            now, after = self.level(step), self.level(step + 1)
            x = self.pinned(x)
            x0 = self.x0(x, step)
            past.insert(0, (x, x0, now))
            x = self.stepped(past, after, step)
        return self.rounded(past[0][1]).tolist()

    def stepped(self, past: list[tuple[Tensor, Tensor, Level]], after: Level, step: int) -> Tensor:
        (x, x0, now), last = past[0], step == (self.d.steps or 0) - 1
        nothing = torch.zeros_like(x)
        if self.d.solver == "ddpm":
            return solvers.ddpm(x, x0, now, after, nothing if last else self.normal())
        if self.d.solver == "ddim":
            eta = self.d.eta or 0.0
            noise = self.normal() if eta and not last else nothing
            return solvers.ddim(x, x0, now, after, torch.tensor([eta]), noise)
        known = (past + past[-1:] * 3)[:4]
        if self.d.solver == "dpm++":
            order = torch.tensor([min(self.d.solver_order or 1, len(past))])
            x0s, levels = [p[1] for p in known[:3]], [p[2] for p in known[:3]]
            return solvers.dpm_solver(x, x0s, levels, after, order)
        if self.d.solver == "plms":
            noises = [level.noise(point, clean_) for point, clean_, level in known[1:]]
            count = torch.tensor([min(3, len(past) - 1)])
            return solvers.plms(x, x0, noises, count, now, after)
        y, time = solvers.to_rectified(x, now)
        _, time_after = solvers.to_rectified(x, after)
        first = now.noise(x, x0) - x0
        guess = solvers.from_rectified(solvers.euler(y, first, time, time_after), after)
        if self.d.solver == "euler" or last:
            return guess
        guess = self.pinned(guess)
        x0_after = self.x0(guess, step + 1)
        second = after.noise(guess, x0_after) - x0_after
        return solvers.from_rectified(solvers.heun(y, first, second, time, time_after), after)

    def x0(self, x: Tensor, step: int) -> Tensor:
        live = torch.ones(x.shape[:2], dtype=torch.bool)
        prompt = self.denoiser.encode_prompt(self.prompt, self.seen)
        predicted = self.denoiser.predict(x, self.time(step), live, prompt, self.seen).float()
        x0 = clean(self.denoiser.spec.prediction, predicted, x, self.level(step))
        if self.d.clamp:
            x0 = self.table[self.rounded(x0)][None]
        return self.pinned(x0)

    def rounded(self, x0: Tensor) -> Tensor:
        """Tokens (L,); pinned ones are theirs."""
        spec = self.denoiser.spec
        scores = {
            "euclidean": lambda: rounding.euclidean(x0[0], self.table),
            "cosine": lambda: rounding.cosine(x0[0], self.table),
            "softmax": lambda: self.denoiser.logits(x0[0]),
        }[self.d.rounding or "euclidean"]()
        scores[:, [spec.mask_id, *spec.forbidden_ids]] = float("-inf")
        tokens = rounding.nearest(scores)
        for offset, token in self.given.items():
            tokens[offset] = token
        return tokens

    def pinned(self, x: Tensor) -> Tensor:
        x = x.clone()
        for offset, token in self.given.items():
            x[0, offset] = self.table[token]
        return x

    def time(self, step: int) -> Tensor:
        assert self.d.steps is not None
        return torch.tensor([self.denoiser.spec.first_time * (1 - step / self.d.steps)])

    def level(self, step: int) -> Level:
        return level_at(self.denoiser.spec.noise_schedule, self.time(step))

    def normal(self) -> Tensor:
        shape = (self.d.max_tokens or 0, self.denoiser.spec.latent_size)
        return torch.from_numpy(self.rng.standard_normal(shape, dtype=np.float32))[None]
