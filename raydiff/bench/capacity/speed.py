"""How fast one replica works: measured here, or told by a benchmark's report."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from raydiff.bench.capacity.workload import Answering, Meter, positions
from raydiff.bench.compare import read_report
from raydiff.bench.evaluation.bootstrap import LEVEL, RESAMPLES
from raydiff.bench.evaluation.generation import Passes
from raydiff.bench.evaluation.settings import Setting
from raydiff.bench.sample import Document
from raydiff.config import CorpusSettings, EngineSettings
from raydiff.decoding import Decoding
from raydiff.engine import Engine
from raydiff.errors import InputError, UsageError
from raydiff.request import Completion, GenerationRequest, Usage
from raydiff.spec import ModelSpec

_REPEATS = 3
_ALL = 10**9


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What one replica does, without the job around it."""

    seconds_per_position: float
    """Seconds over the token positions computed (`workload.positions`)."""
    answering: Answering
    source: str
    """Where that is from, in words."""
    spread: float = 0.0
    """Half the range of repeated measurements over their median."""
    assumptions: tuple[str, ...] = ()


class EngineGenerator:
    """A `Generator` over an engine in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._one_call = asyncio.Lock()

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        """All requests of a call through the engine at once; calls one after another."""
        async with self._one_call:
            return await asyncio.to_thread(self._generate, requests)

    def _generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        engine = self._engine
        for request in requests:
            engine.submit(request)
        done: dict[str, Completion] = {}
        while engine.has_work():
            for event in engine.step():
                if event.completion is not None:
                    done[event.request_id] = event.completion
        return [done[request.request_id] for request in requests]


def measure_speed(
    settings: CorpusSettings, documents: Sequence[Document], decoding: Decoding, threads: int
) -> Speed:
    """Generate documents with an engine like a replica's and take the time.

    Raises:
        ModelError: the model cannot be loaded.
        UsageError: no document gives an answer.
    """
    engine = Engine.load(settings.model, settings=EngineSettings(threads=threads))
    engine.warm_up()
    setting = Setting(name="measured", decoding=decoding)
    # one call carries all: the engine is to fill its batches, as under many callers
    together = {"documents_per_call": _ALL, "dedupe": False}
    seconds = []
    for _ in range(_REPEATS):
        meter = Meter(EngineGenerator(engine), engine.spec)
        passes = Passes(
            generator=meter,
            settings=settings.model_copy(update=together),
            tokenizer=engine.tokenizer,
        )
        seconds.append(asyncio.run(passes.run(documents, setting)).seconds)
    counts = list(meter.counts.values())
    if not counts:
        raise UsageError("input: no document of the sample can be generated.", "input")
    middle = median(seconds)
    return Speed(
        seconds_per_position=middle / sum(count["positions"] for count in counts),
        answering=_answering(counts, settings.seed),
        source=f"measured here on {len(documents)} documents of the sample, {threads} threads",
        spread=(max(seconds) - min(seconds)) / 2 / middle,
    )


def _answering(counts: Sequence[Mapping[str, float]], seed: int) -> Answering:
    output, output_spread = _per_request_of(counts, "output_tokens", seed)
    forwards, forwards_spread = _per_request_of(counts, "forwards", seed)
    return Answering(
        output_tokens=output,
        forwards=forwards,
        output_spread=output_spread,
        forwards_spread=forwards_spread,
    )


def _per_request_of(
    counts: Sequence[Mapping[str, float]], name: str, seed: int
) -> tuple[float, float]:
    """A quantity of a request, and the relative half-width of its bootstrap interval."""
    held = np.array([[count[name], count["requests"]] for count in counts])
    drawn = np.random.default_rng(seed).integers(len(held), size=(RESAMPLES, len(held)))
    sums = held[drawn].sum(axis=1)
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(sums[:, 0] / sums[:, 1], [tail, 100 - tail])
    mean = held[:, 0].sum() / held[:, 1].sum()
    return float(mean), float((high - low) / 2 / mean) if mean else 0.0


def benchmark_speed(path: str, model: str, spec: ModelSpec, decoding: Decoding) -> Speed:
    """The speed that a report of `raydiff bench engine` or `raydiff bench shapes` tells.

    Raises:
        InputError: the file is no such report, or has no figure for the model and decoding.
    """
    report = read_report(path)
    made = {"engine": _of_engine, "shapes": _of_shapes}.get(report["bench"])
    if made is None:
        raise InputError(
            f"benchmark: {path}: expected a report of `raydiff bench engine` or `raydiff bench "
            f"shapes`, got one of {report['bench']!r}.",
            "benchmark",
        )
    try:
        return made(report, path, model, spec, decoding)
    except (KeyError, TypeError, ZeroDivisionError) as error:
        message = f"benchmark: {path} lacks a figure: {type(error).__name__} {error}."
        raise InputError(message, "benchmark") from error


def _of_engine(
    report: Mapping[str, Any], path: str, model: str, spec: ModelSpec, decoding: Decoding
) -> Speed:
    _require(report["model"] == model, path, f"model {model!r}", report["model"])
    name = "engine-threshold" if decoding.policy == "threshold" else "engine"
    found = [one for one in report["contenders"] if one["name"] == name]
    best = max(found, key=lambda one: float(one["documents_per_s"]))
    workload, documents = report["workload"], report["workload"]["documents"]
    prompt = workload.get("prompt_tokens_mean", workload["prompt_tokens_median"])
    output = best["output_tokens"] / documents
    answering = Answering(output_tokens=output, forwards=output / best["tokens_per_forward"])
    gave = ("threshold", best["threshold"]) if best["threshold"] else ("steps", best["steps"])
    stands_for = f"the benchmark's {documents} documents stand for all: intervals do not cover that"
    assumptions = (stands_for, *_other_decoding(decoding, *gave))
    if "prompt_tokens_mean" not in workload:
        assumptions += ("the benchmark's mean prompt is as long as its median",)
    return Speed(
        seconds_per_position=1
        / best["documents_per_s"]
        / _per_request(spec, decoding, prompt, answering),
        answering=answering,
        source=f"{path}: {name}, batch {best['batch']}, {best['documents_per_s']:.1f} documents/s",
        assumptions=assumptions,
    )


def _other_decoding(decoding: Decoding, name: str, value: float) -> tuple[str, ...]:
    wanted = getattr(decoding, name)
    if wanted == value:
        return ()
    return (f"the benchmark ran {name} {value:g}, the job {wanted}",)


def _of_shapes(
    report: Mapping[str, Any], path: str, model: str, spec: ModelSpec, decoding: Decoding
) -> Speed:
    points = [p for p in report["points"] if p["model"] == model and p.get("complete")]
    _require(bool(points), path, f"a complete point of {model!r}", "none")
    best = max(points, key=lambda point: float(point["output_tokens_per_s"]))
    output = best["output_tokens"] / best["batch"]
    benched = Answering(output_tokens=output, forwards=output / best["tokens_per_forward"])
    work = _per_request(spec, decoding, report["prompt_tokens"], benched)
    tokens = decoding.max_tokens or output
    return Speed(
        seconds_per_position=best["seconds"] / best["batch"] / work,
        answering=Answering(output_tokens=tokens, forwards=tokens / best["tokens_per_forward"]),
        source=f"{path}: batch {best['batch']}, {best['output_tokens_per_s']:.0f} output tokens/s",
        assumptions=(
            "answers are as long as max_tokens allows",
            "random weights commit as few tokens a forward as the policy allows",
        ),
    )


def _per_request(
    spec: ModelSpec, decoding: Decoding, prompt_tokens: float, answering: Answering
) -> float:
    usage = Usage(
        prompt_tokens=round(prompt_tokens),
        completion_tokens=round(answering.output_tokens),
        forwards=max(1, round(answering.forwards)),
    )
    return positions(spec, decoding, usage)


def _require(ok: bool, path: str, expected: str, got: object) -> None:
    if not ok:
        raise InputError(f"benchmark: {path}: expected {expected}, got {got!r}.", "benchmark")
