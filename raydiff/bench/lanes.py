"""`raydiff bench lanes`: what batch work beside it costs interactive requests, and the reverse.

One engine on its thread, in this process, without Ray. Three phases take turns: interactive
requests that arrive by themselves (an open loop), batch work that keeps the engine full, and both
together. Interactive requests come as often as takes a given share of the time of an otherwise
idle engine, at the same moments in every phase. Ratios are medians over the rounds.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from raydiff.bench.report import circumstances
from raydiff.bench.serving.figures import percentile
from raydiff.bench.workload import Workload, load_workload
from raydiff.config import Dtype, EngineSettings
from raydiff.engine import Engine, EngineLoop
from raydiff.engine.trace import ForwardRecord
from raydiff.errors import EngineError
from raydiff.request import Decoding, Event, GenerationRequest, Lane
from raydiff.text import Tokenizer

CALIBRATIONS = 8
"""Requests that are sent one after another to learn how long one takes alone."""
LEAD_S = 1.0
"""Batch work runs for this long before anything is counted."""


@dataclass(frozen=True, kw_only=True)
class LanesBench:
    """Settings of one run."""

    input: str
    model: str = "summarizer"
    dtype: Dtype = "bf16"
    settings: EngineSettings = field(default_factory=EngineSettings)
    documents: int = 256
    interactive_share: float = 0.2
    """Share of an idle engine's time that the interactive requests take."""
    interactive_requests: int = 100
    """Of each phase."""
    prompt_tokens: int | None = None
    """Prompts are cut to so many tokens, so that all rows have one shape."""
    max_tokens: int | None = None
    repeats: int = 3
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What one phase saw."""

    seconds: float
    first_text_s: list[float]
    """Of each interactive request, from submission to its first committed text."""
    records: list[ForwardRecord]

    def busy(self, lane: Lane) -> float:
        """Share of the phase's time in forwards of a lane."""
        return sum(r.seconds for r in self.records if r.lane == lane) / self.seconds

    @property
    def batch_rows_per_s(self) -> float:
        """Denoising row forwards of the batch lane."""
        rows = sum(r.batch_rows for r in self.records if r.kind == "denoise")
        return rows / self.seconds

    @property
    def longest_wait(self) -> int:
        """Batch forwards that an interactive request waited for, at most."""
        return max((r.waited for r in self.records if r.waited is not None), default=0)

    def passed_over(self) -> int:
        """Batch forwards that were chosen while interactive requests were ready."""
        return sum(r.lane == "batch" and r.interactive_ready > 0 for r in self.records)

    def first_text(self, percent: float) -> float:
        """A percentile of the time to first committed text, in seconds."""
        return percentile(sorted(self.first_text_s), percent)


class Load:
    """Sends requests to an engine's loop and notes when their text begins."""

    def __init__(self, loop: EngineLoop, workload: Workload, max_tokens: int | None) -> None:
        self._loop = loop
        self._prompts = itertools.cycle(workload.prompts)
        self._numbers = itertools.count()
        self._max_tokens = max_tokens

    def request(self, lane: Lane) -> GenerationRequest:
        """The next request."""
        number = next(self._numbers)
        decoding = Decoding(max_tokens=self._max_tokens, seed=number)
        made = self._loop.engine.request(next(self._prompts), decoding, lane=lane)
        return replace(made, request_id=f"{lane}-{number}", stream=lane == "interactive")

    def one(self) -> float:
        """Send an interactive request and wait for its end; returns the seconds it took."""
        began, done = time.monotonic(), threading.Event()
        self._loop.submit(
            self.request("interactive"), lambda event: _set_at_end(event, done, self._loop)
        )
        done.wait()
        return time.monotonic() - began

    def interactive(self, gaps_s: Sequence[float]) -> list[float]:
        """Send requests after each gap, whatever became of those before; returns the seconds from
        when each was due to its first text."""
        first: dict[str, float] = {}
        finished = threading.Semaphore(0)
        due = time.monotonic()
        for gap in gaps_s:
            due += gap
            time.sleep(max(0.0, due - time.monotonic()))
            request = self.request("interactive")
            self._loop.submit(request, _first_text(first, due, finished))
        for _ in gaps_s:
            finished.acquire()
        return list(first.values())

    @contextmanager
    def saturating(self, in_flight: int) -> Iterator[None]:
        """Keep so many batch requests in flight while the block runs."""
        room, over = threading.Semaphore(in_flight), threading.Event()
        left = threading.Semaphore(0)
        sent = 0

        def ended(event: Event) -> None:
            if event.completion is not None:
                room.release()
                left.release()

        def feed() -> None:
            nonlocal sent
            while not over.is_set():
                room.acquire()
                self._loop.submit(self.request("batch"), ended)
                sent += 1

        feeder = threading.Thread(target=feed, name="raydiff-batch-feeder")
        feeder.start()
        try:
            time.sleep(LEAD_S)
            yield
        finally:
            over.set()
            feeder.join()
            for _ in range(sent):
                left.acquire()


def run_lanes_bench(
    bench: LanesBench, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measure all phases and return the report.

    Raises:
        ModelError, UsageError: the model or the input cannot be used.
    """
    tokenizer = Tokenizer.load(bench.model)
    workload = load_workload(bench.input, tokenizer, documents=bench.documents)
    workload = _shuffled(workload, bench.seed, bench.prompt_tokens)
    engine = Engine.load(bench.model, dtype=bench.dtype, settings=bench.settings)
    engine.warm_up()
    loop = EngineLoop(engine)
    loop.start()
    try:
        load = Load(loop, workload, bench.max_tokens)
        alone_s = median(load.one() for _ in range(CALIBRATIONS))
        gaps = _gaps(bench, alone_s)
        rounds = [_round(bench, loop, load, gaps, progress, i) for i in range(bench.repeats)]
    finally:
        loop.stop()
    return {
        "bench": "lanes",
        "circumstances": circumstances(),
        "model": bench.model,
        "settings": bench.settings.model_dump(),
        "workload": workload.describe(),
        "alone_s": alone_s,
        "interactive_per_s": 1.0 / (sum(gaps) / len(gaps)),
        "repeats": bench.repeats,
        "phases": [row for round_ in rounds for row in _rows(round_)],
        "summary": _summary(rounds),
    }


def _round(
    bench: LanesBench,
    loop: EngineLoop,
    load: Load,
    gaps: Sequence[float],
    progress: Callable[[str], None],
    number: int,
) -> dict[str, Phase]:
    in_flight = 2 * bench.settings.max_rows
    phases: dict[str, Phase] = {}
    for name in ("interactive", "batch", "both"):
        filled = nullcontext() if name == "interactive" else load.saturating(in_flight)
        with filled, Watch(loop) as watch:
            if name == "batch":
                time.sleep(sum(gaps))
                first: list[float] = []
            else:
                first = load.interactive(gaps)
            phases[name] = watch.phase(first)
        progress(f"round {number + 1}: {name}: {_line(phases[name])}")
    return phases


class Watch:
    """Collects the trace of a stretch of time, before the ring forgets it."""

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop
        self._records: dict[int, ForwardRecord] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="raydiff-watch")

    def __enter__(self) -> Watch:
        self._began_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def phase(self, first_text_s: list[float]) -> Phase:
        """What was seen until now."""
        ended_s = time.monotonic()
        self._look()
        records = [r for r in self._records.values() if self._began_s <= r.began_s <= ended_s]
        return Phase(seconds=ended_s - self._began_s, first_text_s=first_text_s, records=records)

    def _main(self) -> None:
        while not self._over.wait(2.0):
            self._look()

    def _look(self) -> None:
        self._records.update((record.tick, record) for record in self._loop.trace())


def _gaps(bench: LanesBench, alone_s: float) -> list[float]:
    """Seconds between arrivals: a Poisson process whose requests take the share asked for."""
    draw = random.Random(bench.seed)
    mean_s = alone_s / bench.interactive_share
    return [draw.expovariate(1.0) * mean_s for _ in range(bench.interactive_requests)]


def _shuffled(workload: Workload, seed: int, longest: int | None) -> Workload:
    prompts = [prompt[:longest] for prompt in workload.prompts]
    random.Random(seed).shuffle(prompts)
    return replace(workload, prompts=tuple(prompts))


def _first_text(
    first: dict[str, float], due_s: float, finished: threading.Semaphore
) -> Callable[[Event], None]:
    def on_event(event: Event) -> None:
        if event.text or event.completion is not None:
            first.setdefault(event.request_id, time.monotonic() - due_s)
        if event.completion is not None:
            finished.release()

    return on_event


def _set_at_end(event: Event, done: threading.Event, loop: EngineLoop) -> None:
    if event.completion is not None:
        if event.completion.finish_reason == "error" and not loop.alive():
            raise EngineError(event.completion.error or "The engine failed.")
        done.set()


def _line(phase: Phase) -> str:
    parts = [f"{phase.batch_rows_per_s:.0f} batch row forwards/s"]
    if phase.first_text_s:
        p50, p95 = phase.first_text(50), phase.first_text(95)
        parts.append(f"first text p50 {p50 * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms")
    return ", ".join(parts)


def _rows(phases: dict[str, Phase]) -> list[dict[str, Any]]:
    return [
        {
            "phase": name,
            "seconds": phase.seconds,
            "first_text_p50_s": phase.first_text(50) if phase.first_text_s else None,
            "first_text_p95_s": phase.first_text(95) if phase.first_text_s else None,
            "batch_rows_per_s": phase.batch_rows_per_s,
            "interactive_busy": phase.busy("interactive"),
            "batch_busy": phase.busy("batch"),
            "longest_wait": phase.longest_wait,
            "passed_over": phase.passed_over(),
            "forwards": len(phase.records),
        }
        for name, phase in phases.items()
    ]


def _summary(rounds: Sequence[dict[str, Phase]]) -> dict[str, Any]:
    """Medians over the rounds of what the phases are compared by."""

    def over(of: Callable[[dict[str, Phase]], float]) -> float:
        return median(of(phases) for phases in rounds)

    return {
        "first_text_p50_ratio": over(
            lambda p: p["both"].first_text(50) / p["interactive"].first_text(50)
        ),
        "first_text_p95_ratio": over(
            lambda p: p["both"].first_text(95) / p["interactive"].first_text(95)
        ),
        "interactive_share": over(lambda p: p["interactive"].busy("interactive")),
        "interactive_share_beside_batch": over(lambda p: p["both"].busy("interactive")),
        "batch_loss": over(
            lambda p: 1.0 - p["both"].batch_rows_per_s / p["batch"].batch_rows_per_s
        ),
        "longest_wait_in_batch_forwards": max(p["both"].longest_wait for p in rounds),
    }
