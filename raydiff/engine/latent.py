"""Latent runner: denoises embeddings. The face of `Runner`, for models of Gaussian noise.

Rows at different steps, with different solvers, orders and rounding, share one evaluation of the
network. Shapes: R rows, W positions of the widest frame, M open positions, E embedding width, V
vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from raydiff.diffusion.gaussian import clean
from raydiff.engine.latent_plan import Draws, LatentPlan
from raydiff.engine.latent_rounding import Rounded, Rounder
from raydiff.engine.latent_rows import LatentRows, X
from raydiff.engine.latent_steps import Steps, Turn
from raydiff.engine.plan import DenoiseResult
from raydiff.engine.shortage import memory_errors
from raydiff.models.denoiser import LatentDenoiser


class LatentRunner:
    """Keeps the latents of admitted rows and runs plans over them."""

    def __init__(self, denoiser: LatentDenoiser) -> None:
        self._denoiser = denoiser
        self._rows = LatentRows(denoiser)
        self._steps = Steps(denoiser.spec)
        self._round = Rounder(denoiser)

    def denoise(self, plan: LatentPlan) -> DenoiseResult:
        """One evaluation of the network. Rows whose steps are done, or whose tokens are stable and
        sure enough, commit all open positions at once.

        Raises:
            OutOfMemory: the device or host had too little memory.
        """
        with torch.inference_mode(), memory_errors():
            return self._denoise(plan)

    def release(self, request_id: str) -> None:
        """Free what is kept of a request."""
        self._rows.release(request_id)

    def forget_prefixes(self) -> bool:
        """Nothing is kept of earlier prompts."""
        return False

    def _denoise(self, plan: LatentPlan) -> DenoiseResult:
        width = plan.tokens.shape[1]
        given = _Given(self._denoiser, plan)
        states = self._rows.states(plan.request_ids, width)
        if plan.start is not None:
            rows, values = self._drawn(plan.start)
            states[:, rows] = 0
            states[X, rows] = values
        states[X] = given.put(states[X])
        turn = self._turn(plan)
        x0_RWE = self._predict(plan, states[X], turn)
        picked_RW = self._to(plan.open & _rounds(plan)[:, None])
        rounded = self._rounded(plan, x0_RWE, picked_RW)
        x0_RWE = self._clamped(plan, x0_RWE, rounded, picked_RW)
        x0_RWE = given.put(x0_RWE)
        states = self._steps.advance(states, x0_RWE, self._noise(plan, x0_RWE), turn)
        tokens_RW = self._to(plan.tokens).masked_scatter(picked_RW, rounded.tokens)
        done = plan.last | self._settled(plan, tokens_RW, rounded.entropy, picked_RW)
        lengths = plan.live.sum(axis=1).tolist()
        self._rows.keep(plan.request_ids, lengths, states, tokens_RW)
        tokens = tokens_RW.cpu().numpy()
        return DenoiseResult(
            candidates=tokens,
            tokens=tokens,
            open=plan.open & ~done[:, None],
            final=done,
            best=None,
            best_confidence=None,
            confidence=None,
        )

    def _predict(self, plan: LatentPlan, x_RWE: Tensor, turn: Turn) -> Tensor:
        """Clean embeddings that the network sees in `x_RWE`."""
        prompts = self._rows.prompts(plan.request_ids, plan.prompts)
        time_R = self._steps.evaluated_at(turn)
        predicted_RWE = self._denoiser.predict(
            x_RWE, time_R, self._to(plan.live), prompts.encoded_RPX, prompts.live_RP
        ).float()
        level = self._steps.level(time_R)
        return clean(self._denoiser.spec.prediction, predicted_RWE, x_RWE, level)

    def _rounded(self, plan: LatentPlan, x0_RWE: Tensor, picked_RW: Tensor) -> Rounded:
        width = plan.tokens.shape[1]
        at_RW = picked_RW.cpu().numpy()

        def spread(values: np.ndarray) -> Tensor:
            return self._to(np.repeat(values[:, None], width, axis=1)[at_RW])

        uniforms_MV = None
        if plan.uniforms is not None:
            rows, values = self._drawn(plan.uniforms)
            uniforms_RWV = values.new_full((len(plan.tokens), *values.shape[1:]), 0.5)
            uniforms_RWV[rows] = values
            uniforms_MV = uniforms_RWV[picked_RW]
        return self._round(
            x0_RWE[picked_RW],
            spread(plan.rounding),
            spread(plan.temperature),
            self._to(plan.end_forbidden[at_RW]),
            uniforms_MV,
        )

    def _clamped(
        self, plan: LatentPlan, x0_RWE: Tensor, rounded: Rounded, picked_RW: Tensor
    ) -> Tensor:
        """Embeddings of rows that clamp, or are at their last step, become rounded ones."""
        if not plan.clamp.any():
            return x0_RWE
        clamps_RW = self._to(plan.clamp)[:, None] & picked_RW
        spread_RWE = torch.zeros_like(x0_RWE)
        spread_RWE[picked_RW] = rounded.embeddings
        return torch.where(clamps_RW[..., None], spread_RWE, x0_RWE)

    def _settled(
        self, plan: LatentPlan, tokens_RW: Tensor, entropy_M: Tensor, picked_RW: Tensor
    ) -> np.ndarray:
        """(R,) rows that asked to stop when their tokens are those of the evaluation before and
        their mean entropy is low enough."""
        asks = ~np.isnan(plan.stop_entropy)
        if not asks.any():
            return asks
        open_RW = self._to(plan.open)
        before_RW = self._rows.last_tokens(plan.request_ids, tokens_RW.shape[1])
        if plan.start is not None:
            before_RW[self._to(plan.start.rows)] = -1
        same_R = ((tokens_RW == before_RW) | ~open_RW).all(dim=1)
        entropy_RW = torch.zeros(tokens_RW.shape, device=tokens_RW.device)
        entropy_RW[picked_RW] = entropy_M
        mean_R = entropy_RW.sum(dim=1) / open_RW.sum(dim=1).clamp(min=1)
        sure_R = mean_R < self._to(np.nan_to_num(plan.stop_entropy, nan=-1.0))
        settled: np.ndarray = (same_R & sure_R).cpu().numpy() & asks
        return settled

    def _noise(self, plan: LatentPlan, like_RWE: Tensor) -> Tensor:
        noise_RWE = torch.zeros_like(like_RWE)
        if plan.noise is not None:
            rows, values = self._drawn(plan.noise)
            noise_RWE[rows] = values
        return noise_RWE

    def _turn(self, plan: LatentPlan) -> Turn:
        return Turn(
            step=self._to(plan.step),
            steps=self._to(plan.steps),
            corrects=self._to(plan.corrects),
            solver=self._to(plan.solver),
            order=self._to(plan.order),
            eta=self._to(plan.eta),
        )

    def _drawn(self, draws: Draws) -> tuple[Tensor, Tensor]:
        return self._to(draws.rows), self._to(draws.values)

    def _to(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._denoiser.device)


class _Given:
    """Closed positions keep their clean embeddings, as in DiffuSeq's partial noising."""

    def __init__(self, denoiser: LatentDenoiser, plan: LatentPlan) -> None:
        self._closed_RW: Tensor | None = None
        if plan.closed.any():
            device = denoiser.device
            self._closed_RW = torch.from_numpy(plan.closed).to(device)
            tokens_RW = torch.from_numpy(plan.tokens).to(device)
            self._embeddings_RWE = denoiser.embed(tokens_RW).float()

    def put(self, x_RWE: Tensor) -> Tensor:
        """`x_RWE` with the given embeddings in their places."""
        if self._closed_RW is None:
            return x_RWE
        return torch.where(self._closed_RW[..., None], self._embeddings_RWE, x_RWE)


def _rounds(plan: LatentPlan) -> np.ndarray:
    """(R,) rows whose evaluation is rounded."""
    rounds: np.ndarray = plan.clamp | plan.last | ~np.isnan(plan.stop_entropy)
    return rounds
