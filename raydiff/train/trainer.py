"""The training loop: fp32 master weights behind a low-precision model, resumable at any step.

A run is a pure function of its settings: batches and noise come from (seed, step), so a resumed run
ends with the same weights as an uninterrupted one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from raydiff.train.batches import Ints, TokenisedPairs, epoch_batches

BETAS = (0.9, 0.98)
CLIP_NORM = 1.0


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Everything that decides a run's weights, besides data and start."""

    optimizer: str = "muon"
    batch_rows: int = 48
    shards: int = 2
    document_tokens: int = 96
    peak_rate: float = 1e-3
    embedding_rate: float = 1.0
    """Share of the rate at which word embeddings learn."""
    warmup_steps: int = 50
    weight_decay: float = 0.01
    average_decay: float = 0.995
    seed: int = 0


@dataclass(frozen=True)
class StepResult:
    """One step's loss, its loss at full noise (nats a token) and the gradient's norm."""

    loss: float
    full_noise_loss: float
    norm: float


Shard = TypeVar("Shard")


class Objective(Protocol[Shard]):
    """What is trained: how a few documents are noised, and how well the model undoes it."""

    def draw(
        self, rows: Ints, generator: np.random.Generator, shared: np.random.Generator
    ) -> Shard:
        """Noise the documents `rows`. `shared` gives all shards of a step the same numbers."""
        ...

    def loss(self, shard: Shard) -> tuple[Tensor, Tensor]:
        """The loss of a shard and, for the log, the cross-entropy in nats of each position that is
        scored at full noise (any number of them).
        """
        ...


class Trainer(Generic[Shard]):
    """Owns master weights, optimizer state and the moving average; the model's own weights follow
    the master's.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective[Shard],
        pairs: TokenisedPairs,
        settings: TrainingSettings,
        folder: Path,
        threads: int = 1,
    ) -> None:
        self.model, self.objective, self.pairs, self.settings = model, objective, pairs, settings
        self.folder = folder
        self.step = 0
        self.documents = 0
        self.seconds = 0.0
        self.workers = ThreadPoolExecutor(threads)
        self.stopping = False
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.master = {
            name: nn.Parameter(p.detach().float().clone()) for name, p in self.named.items()
        }
        self.average = {name: p.detach().clone() for name, p in self.master.items()}
        self.optimizers = make_optimizers(self.master, settings)
        self._epoch = -1
        self._batches: list[Ints] = []

    def run(
        self, until_step: int, decay_steps: int, log_every: int = 20, save_s: float = 300
    ) -> None:
        """Trains up to `until_step`; the rate falls linearly to zero over the last `decay_steps` of
        them.
        """
        saved_at = time.monotonic()
        log = RunningLog(self.folder / "log.jsonl")
        while self.step < until_step and not self.stopping:
            start = time.monotonic()
            rate = rate_at(self.step, until_step, decay_steps, self.settings)
            result = self.train_step(self.draw(self.step), rate)
            self.step += 1
            self.documents += self.settings.batch_rows
            self.seconds += time.monotonic() - start
            log.add(result)
            if self.step % log_every == 0:
                log.write(self.step, self.documents, self.seconds, rate)
            if time.monotonic() - saved_at > save_s:
                self.save()
                saved_at = time.monotonic()
        self.save()

    def stop(self) -> None:
        """Lets `run` save and return after the step in progress; safe in a signal handler."""
        self.stopping = True

    def draw(self, step: int) -> list[Shard]:
        """The noised shards of one step's batch."""
        settings = self.settings
        generators = np.random.default_rng([settings.seed, 1, step]).spawn(settings.shards)
        shards = np.array_split(self._rows(step), settings.shards)
        shared_seed = [settings.seed, 2, step]
        return [
            self.objective.draw(rows, generator, np.random.default_rng(shared_seed))
            for rows, generator in zip(shards, generators, strict=True)
        ]

    def train_step(self, shards: Sequence[Shard], rate: float) -> StepResult:
        """One update of the weights from a batch's shards."""
        results = list(self.workers.map(self._gradients, shards))
        for index, master in enumerate(self.master.values()):
            master.grad = sum_float([grads[index] for _, _, grads in results])
        norm = nn.utils.clip_grad_norm_(self.master.values(), CLIP_NORM)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group.get("share", 1.0)
        list(self.workers.map(lambda optimizer: optimizer.step(), self.optimizers))
        self._follow_master()
        return StepResult(
            loss=sum(loss for loss, _, _ in results),
            full_noise_loss=float(np.mean([full for _, full, _ in results])),
            norm=float(norm),
        )

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

    def _gradients(self, shard: Shard) -> tuple[float, float, tuple[Tensor, ...]]:
        """A shard's loss, its loss at full noise (nats a token) and its share of the gradient."""
        loss, full_M = self.objective.loss(shard)
        share = loss / self.settings.shards
        grads = torch.autograd.grad(share, list(self.named.values()))
        full = float(full_M.detach().mean()) if full_M.numel() else float("nan")
        return float(share.detach()), full, grads

    @torch.no_grad()
    def _follow_master(self) -> None:
        decay = min(self.settings.average_decay, (1 + self.step) / (10 + self.step))
        masters: list[Tensor] = list(self.master.values())
        torch._foreach_lerp_(list(self.average.values()), masters, 1 - decay)
        for name, weight in self.named.items():
            weight.copy_(self.master[name])

    def _rows(self, step: int) -> Ints:
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
    """AdamW for all weights, or Muon for the layers' matrices beside AdamW for the rest.

    Muon comes in one part per shard, as its orthogonalisation is work enough to share out.
    """
    matrices = [p for name, p in master.items() if p.ndim == 2 and ".layer." in name]
    others = [p for name, p in master.items() if not (p.ndim == 2 and ".layer." in name)]
    optimizers: list[torch.optim.Optimizer] = []
    if settings.optimizer == "muon":
        optimizers += [
            torch.optim.Muon(
                matrices[start :: settings.shards],
                lr=settings.peak_rate,
                weight_decay=settings.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
            for start in range(settings.shards)
        ]
    else:
        others = matrices + others
    groups: list[dict[str, Any]] = [
        {"params": [p for p in others if p.ndim == 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in others if p.ndim != 2], "weight_decay": 0.0},
    ]
    if settings.embedding_rate != 1.0:
        slow = [p for name, p in master.items() if "word_embedding" in name]
        groups = [
            {**group, "params": [p for p in group["params"] if all(p is not q for q in slow)]}
            for group in groups
        ]
        groups.append({"params": slow, "weight_decay": 0.0, "share": settings.embedding_rate})
    optimizers.append(torch.optim.AdamW(groups, lr=settings.peak_rate, betas=BETAS, fused=True))
    return optimizers


def sum_float(parts: Sequence[Tensor]) -> Tensor:
    """The sum of some tensors in fp32, in their order."""
    total = parts[0].float()
    for part in parts[1:]:
        total = total + part
    return total


class RunningLog:
    """Appends the mean loss since the last line to a JSON-lines file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: list[StepResult] = []

    def add(self, result: StepResult) -> None:
        self.results.append(result)

    def write(self, step: int, documents: int, seconds: float, rate: float) -> None:
        line = {"step": step, "documents": documents, "seconds": round(seconds, 1), "rate": rate}
        for field in fields(StepResult):
            values = [getattr(result, field.name) for result in self.results]
            line[field.name] = round(float(np.nanmean(values)), 4)
        with self.path.open("a") as sink:
            sink.write(json.dumps(line) + "\n")
        self.results.clear()
