"""The training loop: fp32 master weights behind a low-precision model, resumable at any step.

A run is a pure function of its settings: batches and noise come from (seed, step), so a resumed run
ends with the same weights as an uninterrupted one.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raydiff.models.denoiser import Denoiser
from raydiff.train.batches import TokenisedPairs, epoch_batches, prompt
from raydiff.train.objective import NoisedBatch, denoising_loss, draw_blocks, noise_batch

BETAS = (0.9, 0.98)
CLIP_NORM = 1.0


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Everything that decides a run's weights, besides data and start."""

    optimizer: str = "adamw"
    batch_rows: int = 64
    copies: int = 2
    document_tokens: int = 128
    peak_rate: float = 5e-4
    warmup_steps: int = 150
    weight_decay: float = 0.01
    later_share: float = 0.15
    short_share: float = 0.7
    average_decay: float = 0.995
    seed: int = 0
    target_position: int = 448


class Trainer:
    """Owns master weights, optimizer state and the moving average; the model's own weights follow
    the master's.
    """

    def __init__(
        self,
        model: nn.Module,
        denoiser: Denoiser,
        pairs: TokenisedPairs,
        settings: TrainingSettings,
        folder: Path,
    ) -> None:
        self.model, self.denoiser, self.pairs, self.settings = model, denoiser, pairs, settings
        self.folder = folder
        self.step = 0
        self.documents = 0
        self.seconds = 0.0
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.master = {
            name: nn.Parameter(p.detach().float().clone()) for name, p in self.named.items()
        }
        self.average = {name: p.detach().clone() for name, p in self.master.items()}
        self.optimizers = make_optimizers(self.master, settings)
        self._epoch = -1
        self._batches: list[Any] = []

    def run(
        self, until_step: int, decay_steps: int, log_every: int = 20, save_s: float = 300
    ) -> None:
        """Trains up to `until_step`; the rate falls linearly to zero over the last `decay_steps` of
        them.
        """
        saved_at = time.monotonic()
        log = RunningLog(self.folder / "log.jsonl")
        while self.step < until_step:
            start = time.monotonic()
            rate = rate_at(self.step, until_step, decay_steps, self.settings)
            loss, full, norm = self.train_step(self.draw(self.step), rate)
            self.step += 1
            self.documents += self.settings.batch_rows
            self.seconds += time.monotonic() - start
            log.add(loss, full, norm)
            if self.step % log_every == 0:
                log.write(self.step, self.documents, self.seconds, rate)
            if time.monotonic() - saved_at > save_s:
                self.save()
                saved_at = time.monotonic()
        self.save()

    def draw(self, step: int) -> NoisedBatch:
        """The noised batch of one step."""
        settings = self.settings
        generator = np.random.default_rng([settings.seed, 1, step])
        rows = self._rows(step)
        limit = settings.document_tokens
        documents = [prompt(self.pairs.documents[row], limit) for row in rows]
        summaries = [self.pairs.summaries[row] for row in rows]
        lengths = np.array([len(summary) + 1 for summary in summaries])
        blocks = draw_blocks(lengths, generator, settings.later_share, settings.short_share)
        return noise_batch(
            documents, summaries, blocks, settings.copies, settings.target_position, generator
        )

    def train_step(self, batch: NoisedBatch, rate: float) -> tuple[float, float, float]:
        """One update; returns the loss, the loss at full noise (per token, nats) and the gradient's
        norm.
        """
        loss, losses_M = denoising_loss(self.denoiser, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        for name, weight in self.named.items():
            master = self.master[name]
            assert weight.grad is not None
            master.grad = weight.grad.float()
            weight.grad = None
        norm = nn.utils.clip_grad_norm_(self.master.values(), CLIP_NORM)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["rate_factor"]
            optimizer.step()
        self._follow_master()
        full = losses_M.detach()[batch.full_noise_M & (batch.weights_M > 0)]
        return float(loss.detach()), float(full.mean()) if len(full) else float("nan"), float(norm)

    def save(self) -> None:
        """Writes `checkpoint.pt` atomically."""
        state = {
            "step": self.step,
            "documents": self.documents,
            "seconds": self.seconds,
            "master": {name: p.detach() for name, p in self.master.items()},
            "average": self.average,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        target = self.folder / "checkpoint.pt"
        torch.save(state, target.with_suffix(".tmp"))
        os.replace(target.with_suffix(".tmp"), target)

    def load(self, path: Path) -> None:
        """Continues from a checkpoint that `save` wrote."""
        state = torch.load(path, weights_only=True)
        self.step, self.documents = state["step"], state["documents"]
        self.seconds, self.average = state["seconds"], state["average"]
        with torch.no_grad():
            for name, value in state["master"].items():
                self.master[name].copy_(value)
                self.named[name].copy_(value)
        for optimizer, stored in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(stored)

    @torch.no_grad()
    def _follow_master(self) -> None:
        decay = min(self.settings.average_decay, (1 + self.step) / (10 + self.step))
        masters: list[Tensor] = list(self.master.values())
        torch._foreach_lerp_(list(self.average.values()), masters, 1 - decay)
        for name, weight in self.named.items():
            weight.copy_(self.master[name])

    def _rows(self, step: int) -> Any:
        while True:
            if self._epoch < 0:
                self._load_epoch(0)
            first = self._epoch * len(self._batches)
            if first <= step < first + len(self._batches):
                return self._batches[step - first]
            # Every epoch has as many batches: groups are capped alike each time.
            self._load_epoch(step // len(self._batches))

    def _load_epoch(self, epoch: int) -> None:
        settings = self.settings
        self._epoch = epoch
        self._batches = epoch_batches(
            self.pairs, settings.batch_rows, settings.document_tokens, settings.seed, epoch
        )


def rate_at(step: int, until_step: int, decay_steps: int, settings: TrainingSettings) -> float:
    """Warm-up, then a constant rate, then a linear fall to zero (WSD: the fall may start from any
    checkpoint).
    """
    warm = min(1.0, (step + 1) / settings.warmup_steps)
    left = min(1.0, (until_step - step) / decay_steps) if decay_steps else 1.0
    return settings.peak_rate * warm * left


def make_optimizers(
    master: dict[str, nn.Parameter], settings: TrainingSettings
) -> list[torch.optim.Optimizer]:
    """AdamW for all weights, or Muon for the layers' matrices beside AdamW for the rest."""
    matrices = [p for name, p in master.items() if p.ndim == 2 and ".layer." in name]
    others = [p for name, p in master.items() if not (p.ndim == 2 and ".layer." in name)]
    optimizers: list[torch.optim.Optimizer] = []
    if settings.optimizer == "muon":
        optimizers.append(
            torch.optim.Muon(
                matrices,
                lr=settings.peak_rate,
                weight_decay=settings.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    else:
        others = matrices + others
    decayed = [p for p in others if p.ndim == 2]
    plain = [p for p in others if p.ndim != 2]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    optimizers.append(torch.optim.AdamW(groups, lr=settings.peak_rate, betas=BETAS, fused=True))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["rate_factor"] = 1.0
    return optimizers


class RunningLog:
    """Appends the mean loss since the last line to a JSON-lines file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started = time.monotonic()
        self._clear()

    def add(self, loss: float, full: float, norm: float) -> None:
        self.losses.append(loss)
        self.norms.append(norm)
        if full == full:
            self.fulls.append(full)

    def write(self, step: int, documents: int, seconds: float, rate: float) -> None:
        line = {
            "step": step,
            "documents": documents,
            "seconds": round(seconds, 1),
            "loss": round(sum(self.losses) / len(self.losses), 4),
            "full_noise_loss": round(sum(self.fulls) / max(len(self.fulls), 1), 4),
            "norm": round(sum(self.norms) / len(self.norms), 3),
            "rate": rate,
        }
        with self.path.open("a") as sink:
            sink.write(json.dumps(line) + "\n")
        self._clear()

    def _clear(self) -> None:
        self.losses: list[float] = []
        self.fulls: list[float] = []
        self.norms: list[float] = []
