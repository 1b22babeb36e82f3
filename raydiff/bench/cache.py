"""`raydiff bench cache`: what approximate caches change and what they save.

A model of full attention has no exact cache: an approximate one keeps keys and values of some
positions while the canvas changes around them. Every cache decodes the same documents with the
same settings; its tokens are compared with those of `cache="none"`. Caches take turns, so that
drift of the machine falls on all of them. A refresh at every step keeps nothing, so its tokens
must equal those without a cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from raydiff.bench.agreement import agreement
from raydiff.bench.quality import rouge
from raydiff.bench.report import circumstances
from raydiff.bench.workload import Workload, load_workload
from raydiff.config import Device, Dtype, EngineSettings
from raydiff.decoding import CacheMode
from raydiff.engine import Engine
from raydiff.metrics import NullRecorder
from raydiff.request import Completion, Decoding, StepStats
from raydiff.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class CacheBench:
    """Settings of one run."""

    input: str
    model: str = "tiny-masked"
    block_length: int = 8
    steps: int = 8
    """Denoising steps of each block."""
    refresh: tuple[int, ...] = (1, 2, 4, 8)
    windows: tuple[int, ...] = (0, 4, 8)
    device: Device = "auto"
    dtype: Dtype = "fp32"
    threads: int = 0
    documents: int = 100
    repeats: int = 3

    def decodings(self) -> list[Decoding]:
        """No cache first, then each approximate one."""
        prefix = [self._decoding("prefix", refresh) for refresh in self.refresh]
        dual = [
            self._decoding("dual", refresh, window)
            for window in self.windows
            for refresh in self.refresh
        ]
        return [self._decoding("none"), *prefix, *dual]

    def _decoding(
        self, cache: CacheMode, refresh: int | None = None, window: int | None = None
    ) -> Decoding:
        return Decoding(
            policy="quota",
            steps=self.steps,
            block_length=self.block_length,
            cache=cache,
            refresh_steps=refresh,
            window=window,
        )


class PositionCount(NullRecorder):
    """Counts the positions that forwards compute."""

    def __init__(self) -> None:
        self.positions = 0

    def on_step(self, stats: StepStats) -> None:
        """See `Recorder.on_step`."""
        self.positions += stats.positions


@dataclass(kw_only=True)
class Contender:
    """One cache, and what its passes over the workload took."""

    decoding: Decoding
    completions: list[Completion] = field(default_factory=list)
    positions: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The cache's settings in words."""
        d = self.decoding
        parts = [str(d.cache)]
        parts += [] if d.refresh_steps is None else [f"refresh {d.refresh_steps}"]
        parts += [] if d.window is None else [f"window {d.window}"]
        return ", ".join(parts)

    @property
    def tokens(self) -> list[tuple[int, ...]]:
        """What each document came to."""
        return [completion.token_ids for completion in self.completions]

    @property
    def tokens_per_s(self) -> list[float]:
        """Output tokens over seconds, pass by pass."""
        return [sum(map(len, self.tokens)) / seconds for seconds in self.seconds]

    def take_turn(self, engine: Engine, counted: PositionCount, workload: Workload) -> None:
        """Run once over the workload and keep the time."""
        before, started = counted.positions, time.perf_counter()
        self.completions = engine.generate(workload.prompts, self.decoding)
        self.seconds.append(time.perf_counter() - started)
        self.positions = counted.positions - before

    def record(self, exact: Contender, workload: Workload) -> dict[str, Any]:
        """This cache's line of the report."""
        forwards = sum(completion.usage.forwards for completion in self.completions)
        texts = [completion.text for completion in self.completions]
        ratios = [a / b for a, b in zip(self.tokens_per_s, exact.tokens_per_s, strict=True)]
        scores = rouge(texts, workload.references) if workload.references else {}
        return {
            "cache": self.name,
            **agreement(self.tokens, exact.tokens),
            **scores,
            "forwards": forwards,
            "positions_per_forward": self.positions / forwards,
            "output_tokens": sum(map(len, self.tokens)),
            "output_tokens_per_s": median(self.tokens_per_s),
            "over_none": median(ratios),
            "seconds": self.seconds,
        }


def run_cache_bench(
    bench: CacheBench, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measure every cache and return the report.

    Raises:
        DecodingError: the model takes no approximate cache.
        ModelError, UsageError: the model or the input cannot be used.
    """
    counted = PositionCount()
    engine = Engine.load(
        bench.model,
        device=bench.device,
        dtype=bench.dtype,
        settings=EngineSettings(threads=bench.threads),
        recorder=counted,
    )
    contenders = [Contender(decoding=decoding) for decoding in bench.decodings()]
    for contender in contenders:
        engine.spec.resolve(contender.decoding)
    workload = load_workload(bench.input, Tokenizer.load(bench.model), documents=bench.documents)
    for contender in contenders:
        contender.take_turn(engine, counted, workload.last(4))  # warm-up, not counted
        contender.seconds.clear()
    for round_ in range(bench.repeats):
        for contender in contenders:
            contender.take_turn(engine, counted, workload)
            speed = contender.tokens_per_s[-1]
            progress(f"round {round_ + 1}: {contender.name}: {speed:.0f} tok/s")
    return {
        "bench": "cache",
        "circumstances": circumstances(),
        "model": bench.model,
        "dtype": bench.dtype,
        "threads": torch.get_num_threads(),
        "block_length": bench.block_length,
        "steps": bench.steps,
        "workload": workload.describe(),
        "repeats": bench.repeats,
        "caches": [contender.record(contenders[0], workload) for contender in contenders],
    }
