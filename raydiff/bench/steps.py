"""`raydiff bench steps`: quality against speed, over step counts and confidence thresholds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raydiff.bench.quality import rouge
from raydiff.bench.report import circumstances
from raydiff.bench.workload import Workload, load_workload
from raydiff.config import Device, Dtype, EngineSettings
from raydiff.engine import Engine
from raydiff.errors import InputError, UsageError
from raydiff.request import Decoding


@dataclass(frozen=True, kw_only=True)
class StepsBench:
    """Settings of one sweep."""

    input: str
    model: str = "summarizer"
    steps: tuple[int, ...] = (1, 2, 4, 8, 16)
    thresholds: tuple[float, ...] = (0.5, 0.7, 0.9)
    device: Device = "auto"
    dtype: Dtype = "bf16"
    threads: int = 0
    documents: int = 0

    def decodings(self) -> list[tuple[str, Decoding]]:
        """Each point of the sweep, named."""
        quota = [(f"{n} steps", Decoding(policy="quota", steps=n)) for n in self.steps]
        threshold = [
            (f"threshold {x:g}", Decoding(policy="threshold", threshold=x)) for x in self.thresholds
        ]
        return quota + threshold


def run_steps_bench(
    bench: StepsBench, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measure each point once over the workload and return the report.

    Raises:
        InputError: the input has no reference summaries.
        ModelError, UsageError: the model or the input cannot be used.
    """
    decodings = bench.decodings()
    engine = Engine.load(
        bench.model,
        device=bench.device,
        dtype=bench.dtype,
        settings=EngineSettings(threads=bench.threads),
    )
    workload = load_workload(bench.input, engine.tokenizer, documents=bench.documents)
    if not workload.references:
        raise InputError(f"{bench.input}: expected a column 'summary' to compare with.")
    engine.warm_up()
    points = []
    for name, decoding in decodings:
        points.append(_point(engine, workload, name, decoding))
        progress(f"{name}: ROUGE-L {points[-1]['rougeL']}")
    return {
        "bench": "steps",
        "circumstances": circumstances(),
        "model": bench.model,
        "dtype": bench.dtype,
        "workload": workload.describe(),
        "points": points,
    }


def _point(engine: Engine, workload: Workload, name: str, decoding: Decoding) -> dict[str, Any]:
    started = time.perf_counter()
    completions = engine.generate(workload.prompts, decoding)
    seconds = time.perf_counter() - started
    tokens = sum(c.usage.completion_tokens for c in completions)
    forwards = sum(c.usage.forwards for c in completions)
    return {
        "decoding": name,
        "output_tokens": tokens,
        "tokens_per_forward": tokens / forwards,
        "output_tokens_per_s": tokens / seconds,
        "documents_per_s": len(completions) / seconds,
        **rouge([c.text for c in completions], workload.references),
    }


def plot(report: dict[str, Any], path: str) -> None:
    """Draw ROUGE-L over output tokens/s, one point a decoding.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        message = "--plot needs matplotlib: pip install 'raydiff[bench]'."
        raise UsageError(message) from error
    figure = Figure(figsize=(7, 4.5), layout="tight")
    axes = figure.add_subplot()
    for kind, marker in (("steps", "o"), ("threshold", "s")):
        points = [p for p in report["points"] if kind in p["decoding"]]
        speeds = [p["output_tokens_per_s"] for p in points]
        axes.plot(speeds, [p["rougeL"] for p in points], marker=marker, label=kind)
        for point, speed in zip(points, speeds, strict=True):
            axes.annotate(point["decoding"], (speed, point["rougeL"]), fontsize=7)
    axes.set_xlabel("output tokens/s")
    axes.set_ylabel("ROUGE-L F1")
    axes.set_title(f"{report['model']}, {report['workload']['documents']} documents")
    axes.legend()
    figure.savefig(path)
