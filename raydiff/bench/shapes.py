"""`raydiff bench shapes`: speed and memory of public shapes, with random weights.

Each model generates for batches of different sizes, under its own default decoding and never
ending early, so that each row's output is `max_tokens` long (a whole canvas where a model denoises
nothing shorter). Random weights are never sure of a token: policies that commit by confidence take
as many forwards as they ever can. So tokens/s is a lower bound, and seconds per forward are what
to plan by.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from raydiff.bench.report import circumstances
from raydiff.config import Device, Dtype, EngineSettings
from raydiff.engine import Engine
from raydiff.errors import RaydiffError
from raydiff.models.loading import resolve_device
from raydiff.models.precision import resolve_precision
from raydiff.request import Completion, Decoding, RequestStats, StepStats
from raydiff.spec import ModelSpec

Point = dict[str, Any]
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ShapesBench:
    """Settings of one run."""

    models: tuple[str, ...]
    batches: tuple[int, ...] = (1, 8, 64)
    prompt_tokens: int = 128
    max_tokens: int = 64
    device: Device = "auto"
    dtype: Dtype = "bf16"
    threads: int = 0
    limit_s: float = 540.0
    """Seconds for all of it. Each measurement gets an equal share of what is left; one that does
    not finish in its share is cut, and counted as far as it came."""


class Tally:
    """A Recorder that adds up forwards by kind."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.forwards: Counter[str] = Counter()
        self.committed_tokens = 0
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def on_step(self, stats: StepStats) -> None:
        self.forwards[stats.kind] += 1
        self.committed_tokens += stats.committed_tokens
        self._seconds[stats.kind] += stats.forward_s

    def on_request(self, stats: RequestStats) -> None:
        return None

    def seconds_per_forward(self, kind: str) -> float | None:
        """The mean, if there was such a forward."""
        return self._seconds[kind] / self.forwards[kind] if self.forwards[kind] else None


def run_shapes_bench(bench: ShapesBench, progress: Progress = lambda line: None) -> dict[str, Any]:
    """Measure all models at all batches and return the report.

    A model that cannot be built or run is reported with its error, and the others go on.
    """
    started = time.monotonic()
    device = resolve_device(bench.device)
    points: list[Point] = []
    for i, model in enumerate(bench.models):
        ends = started + bench.limit_s
        for point in _measure_model(bench, model, ends, len(bench.models) - i):
            points.append(point)
            progress(str({key: value for key, value in point.items() if value is not None}))
        _give_back_memory()
    return {
        "bench": "shapes",
        "circumstances": circumstances(),
        "device": str(device),
        "dtype": resolve_precision(bench.dtype, device).name,
        "prompt_tokens": bench.prompt_tokens,
        "seconds": time.monotonic() - started,
        "points": points,
    }


def _measure_model(
    bench: ShapesBench, model: str, ends_s: float, models_left: int
) -> Iterator[Point]:
    """A point a batch size, or one with the error that the model ended with."""
    began, tally = time.monotonic(), Tally()
    left = models_left * len(bench.batches)
    try:
        engine = Engine.load(
            model,
            device=bench.device,
            dtype=bench.dtype,
            settings=EngineSettings(max_rows=max(bench.batches), threads=bench.threads),
            recorder=tally,
        )
        load_s, weights = time.monotonic() - began, _memory_bytes()
        for batch in bench.batches:
            until = time.monotonic() + (ends_s - time.monotonic()) / left
            point = _measure(engine, tally, _Job(bench, engine.spec, batch), until)
            left -= 1
            yield {"model": model, "load_s": load_s, "weights_bytes": weights, **point}
    except (RaydiffError, RuntimeError) as error:
        yield {"model": model, "error": f"{type(error).__name__}: {error}"}


class _Job:
    """What one measurement generates."""

    def __init__(self, bench: ShapesBench, spec: ModelSpec, batch: int) -> None:
        self.batch = batch
        least = spec.block_length if spec.noise == "uniform" else 1
        self.max_tokens = min(max(bench.max_tokens, least), spec.max_new_tokens)
        # as different as prompts can be, so that none begins like another
        draw = random.Random(batch)
        self.prompts = [
            [draw.randrange(spec.vocab_size) for _ in range(bench.prompt_tokens)]
            for _ in range(batch)
        ]
        self.decoding = Decoding(max_tokens=self.max_tokens, ignore_eos=True, seed=0)


def _measure(engine: Engine, tally: Tally, job: _Job, until_s: float) -> Point:
    _generate(engine, job, until_s, forwards=2)  # kernels are chosen, memory is mapped
    tally.reset()
    _reset_peak()
    began = time.monotonic()
    completions = _generate(engine, job, until_s)
    seconds = time.monotonic() - began
    complete = all(c.finish_reason == "length" for c in completions)
    written = sum(c.usage.completion_tokens for c in completions)
    tokens = written if complete else tally.committed_tokens
    row_forwards = sum(c.usage.forwards for c in completions)
    return {
        "batch": job.batch,
        "max_tokens": job.max_tokens,
        "complete": complete,
        "output_tokens": tokens,
        "seconds": seconds,
        "output_tokens_per_s": tokens / seconds,
        "tokens_per_forward": tokens / row_forwards if row_forwards else None,
        "forwards": dict(tally.forwards),
        "denoise_s_per_forward": tally.seconds_per_forward("denoise"),
        "encode_s_per_forward": tally.seconds_per_forward("encode"),
        "peak_memory_bytes": _peak_bytes(),
    }


def _generate(
    engine: Engine, job: _Job, until_s: float, forwards: int | None = None
) -> list[Completion]:
    """All rows at once, until they are done, time is up or there were so many forwards."""
    requests = [engine.request(prompt, job.decoding) for prompt in job.prompts]
    for request in requests:
        engine.submit(request)
    completions: list[Completion] = []
    steps = 0
    while engine.load_count() or engine.has_work():
        if time.monotonic() > until_s or steps == forwards:
            for request in requests:
                engine.cancel(request.request_id)
        completions += [e.completion for e in engine.step() if e.completion is not None]
        steps += 1
    return completions


def _give_back_memory() -> None:
    """What a model held before the next is built."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _memory_bytes() -> int | None:
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else None


def _reset_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _peak_bytes() -> int | None:
    """Bytes of GPU memory held at most since the last reset; `None` without a GPU."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
