"""`raydiff bench engine`: the engine against plain references, over the same weights.

Contenders, for each batch size B:
- engine: up to B requests at a time through our engine, at equal steps;
- engine-threshold: the same under the threshold rule;
- recompute: fixed batches of B, prompt and block recomputed at every step (`references.py`).
The engine at B = 1 is the reference "one request at a time". Contenders take turns, so that
drift of the machine falls on all of them; ratios are medians over the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from raydiff.bench.quality import rouge
from raydiff.bench.references import Recompute
from raydiff.bench.report import circumstances
from raydiff.bench.workload import Workload, load_workload
from raydiff.config import Device, Dtype, EngineSettings, usable_cores
from raydiff.engine import Engine
from raydiff.models.loading import resolve_device, resolve_dtype
from raydiff.models.precision import resolve_precision
from raydiff.request import Decoding
from raydiff.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class EngineBench:
    """Settings of one run."""

    input: str
    model: str = "summarizer"
    batches: tuple[int, ...] = (1, 32)
    steps: int = 16
    threshold: float = 0.9
    device: Device = "auto"
    dtype: Dtype = "bf16"
    threads: int = 0
    documents: int = 0
    repeats: int = 3


@dataclass(frozen=True)
class Run:
    """What one pass of a contender over the workload wrote."""

    texts: list[str]
    tokens: int
    forwards: int
    """Denoising forwards summed over rows."""


@dataclass(kw_only=True)
class Contender:
    """A way to generate for the whole workload, and what its passes took."""

    name: str
    batch: int
    decoding: Decoding
    generate: Callable[[Workload], Run]
    seconds: list[float] = field(default_factory=list)
    run: Run | None = None

    def take_turn(self, workload: Workload) -> None:
        """Run once over the workload and keep the time."""
        started = time.perf_counter()
        self.run = self.generate(workload)
        self.seconds.append(time.perf_counter() - started)

    @property
    def tokens_per_s(self) -> list[float]:
        assert self.run is not None
        return [self.run.tokens / seconds for seconds in self.seconds]

    def record(self, workload: Workload) -> dict[str, Any]:
        """This contender's part of the report."""
        assert self.run is not None
        run = self.run
        scores = rouge(run.texts, workload.references) if workload.references else {}
        return {
            "name": self.name,
            "batch": self.batch,
            "steps": self.decoding.steps,
            "threshold": self.decoding.threshold,
            "output_tokens": run.tokens,
            "tokens_per_forward": run.tokens / run.forwards,
            "seconds": self.seconds,
            "output_tokens_per_s": median(self.tokens_per_s),
            "documents_per_s": len(run.texts) / median(self.seconds),
            **scores,
        }


def run_engine_bench(
    bench: EngineBench, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measure all contenders and return the report.

    Raises:
        ModelError, UsageError: the model or the input cannot be used.
    """
    workload = load_workload(bench.input, Tokenizer.load(bench.model), documents=bench.documents)
    contenders = _contenders(bench)
    for contender in contenders:
        contender.take_turn(workload.last(4))  # warm-up, not counted
        contender.seconds.clear()
    for round_ in range(bench.repeats):
        for contender in contenders:
            contender.take_turn(workload)
            speed = contender.tokens_per_s[-1]
            progress(f"round {round_ + 1}: {contender.name} {contender.batch}: {speed:.0f} tok/s")
    device = resolve_device(bench.device)
    precision = resolve_precision(bench.dtype, device)
    return {
        "bench": "engine",
        "circumstances": circumstances(),
        "model": bench.model,
        "device": str(device),
        "dtype": precision.weights or str(precision.activations).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "workload": workload.describe(),
        "repeats": bench.repeats,
        "contenders": [contender.record(workload) for contender in contenders],
        "ratios": ratios(contenders),
    }


def ratios(contenders: Sequence[Contender]) -> list[dict[str, Any]]:
    """Output tokens/s of the engine over each reference, as the median over rounds."""
    by_key = {(c.name, c.batch): c for c in contenders}
    largest = max(c.batch for c in contenders)
    pairs = [(c, by_key["recompute", c.batch]) for c in contenders if c.name != "recompute"]
    if largest > 1 and ("engine", 1) in by_key:
        one_at_a_time = by_key["engine", 1]
        pairs += [(by_key[name, largest], one_at_a_time) for name in ("engine", "engine-threshold")]
    return [
        {
            "of": f"{one.name} at batch {one.batch}",
            "over": f"{other.name} at batch {other.batch}",
            "ratio": _median_ratio(one, other),
        }
        for one, other in pairs
    ]


def _median_ratio(one: Contender, other: Contender) -> float:
    pairs = zip(one.tokens_per_s, other.tokens_per_s, strict=True)
    return median(a / b for a, b in pairs)


def _contenders(bench: EngineBench) -> list[Contender]:
    equal_steps = Decoding(policy="quota", steps=bench.steps)
    by_threshold = Decoding(policy="threshold", threshold=bench.threshold)
    device = resolve_device(bench.device)
    recompute = Recompute(bench.model, device=device, dtype=resolve_dtype(bench.dtype, device))
    found: list[Contender] = []
    for batch in bench.batches:
        engine = Engine.load(
            bench.model,
            device=bench.device,
            dtype=bench.dtype,
            settings=EngineSettings(
                max_rows=batch,
                max_prefill_rows=min(batch, 32),
                threads=bench.threads or usable_cores(),
            ),
        )
        ways = (
            ("engine", equal_steps, _through_engine(engine, equal_steps)),
            ("engine-threshold", by_threshold, _through_engine(engine, by_threshold)),
            (
                "recompute",
                equal_steps,
                _recomputed(recompute, engine.tokenizer, equal_steps, batch),
            ),
        )
        for name, decoding, generate in ways:
            found.append(Contender(name=name, batch=batch, decoding=decoding, generate=generate))
    return found


def _through_engine(engine: Engine, decoding: Decoding) -> Callable[[Workload], Run]:
    def generate(workload: Workload) -> Run:
        completions = engine.generate(workload.prompts, decoding)
        return Run(
            [c.text for c in completions],
            sum(c.usage.completion_tokens for c in completions),
            sum(c.usage.forwards for c in completions),
        )

    return generate


def _recomputed(
    recompute: Recompute, tokenizer: Tokenizer, decoding: Decoding, batch: int
) -> Callable[[Workload], Run]:
    def generate(workload: Workload) -> Run:
        texts: list[str] = []
        tokens = forwards = 0
        for start in range(0, len(workload.prompts), batch):
            before = recompute.forwards
            rows = recompute.generate(workload.prompts[start : start + batch], decoding)
            forwards += (recompute.forwards - before) * len(rows)
            tokens += sum(map(len, rows))
            texts.extend(tokenizer.decode(row) for row in rows)
        return Run(texts, tokens, forwards)

    return generate
