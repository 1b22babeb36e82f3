"""The speed of a replica: measured, from a report, or from a data sheet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raydiff.bench.capacity.roofline import ACCELERATORS, roofline_speed, shape_of
from raydiff.bench.capacity.speed import Speed, benchmark_speed, measure_speed
from raydiff.bench.capacity.workload import positions
from raydiff.bench.sample import Document
from raydiff.config import CorpusSettings
from raydiff.decoding import Decoding
from raydiff.errors import InputError, UsageError
from raydiff.families import load_spec
from raydiff.request import Usage

SPEC = load_spec("random:tiny-summarizer")
DECODING = SPEC.resolve(Decoding())


def engine_report(**changes: Any) -> dict[str, Any]:
    contender = {
        "name": "engine",
        "batch": 32,
        "steps": DECODING.steps,
        "threshold": None,
        "output_tokens": 1000,
        "tokens_per_forward": 2.0,
        "documents_per_s": 50.0,
    }
    slow = {**contender, "batch": 1, "documents_per_s": 5.0}
    workload = {"documents": 100, "prompt_tokens_mean": 84, "prompt_tokens_median": 70}
    report = {
        "bench": "engine",
        "model": "m",
        "workload": workload,
        "contenders": [slow, contender],
    }
    return {**report, **changes}


def told(folder: Path, report: dict[str, Any], decoding: Decoding = DECODING) -> Speed:
    path = folder / "report.json"
    path.write_text(json.dumps(report))
    return benchmark_speed(str(path), "m", SPEC, decoding)


def test_a_report_of_the_engine_tells_of_its_fastest_batch(tmp_path: Path) -> None:
    speed = told(tmp_path, engine_report())
    assert speed.answering.output_tokens == 10
    assert speed.answering.forwards == 5
    usage = Usage(prompt_tokens=84, completion_tokens=10, forwards=5)
    per_document = speed.seconds_per_position * positions(SPEC, DECODING, usage)
    assert per_document == pytest.approx(1 / 50)
    assert [said[:29] for said in speed.assumptions] == ["the benchmark's 100 documents"]


def test_what_the_benchmark_did_otherwise_is_told(tmp_path: Path) -> None:
    assert (
        "ran steps"
        in told(tmp_path, engine_report(), SPEC.resolve(Decoding(steps=2))).assumptions[1]
    )
    workload = {"documents": 100, "prompt_tokens_median": 70}
    assert "median" in told(tmp_path, engine_report(workload=workload)).assumptions[1]


def test_a_report_of_shapes_tells_of_its_fastest_batch(tmp_path: Path) -> None:
    point = {
        "model": "m",
        "batch": 8,
        "complete": True,
        "output_tokens": 8 * 16,
        "tokens_per_forward": 2.0,
        "output_tokens_per_s": 64.0,
        "seconds": 2.0,
    }
    cut = {**point, "complete": False, "output_tokens_per_s": 999.0}
    report = {"bench": "shapes", "prompt_tokens": 128, "points": [point, cut]}
    speed = told(tmp_path, report)
    usage = Usage(prompt_tokens=128, completion_tokens=16, forwards=8)
    assert speed.seconds_per_position * positions(SPEC, DECODING, usage) == pytest.approx(2 / 8)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ({"bench": "serve"}, "expected a report of `raydiff bench engine`"),
        (engine_report(model="other"), "expected model 'm', got 'other'"),
        (engine_report(workload={}), "lacks a figure"),
        ({"bench": "shapes", "points": []}, "expected a complete point of 'm'"),
    ],
)
def test_other_reports_are_refused(tmp_path: Path, report: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        told(tmp_path, report)


def test_a_measurement_counts_what_the_engine_did(tiny_checkpoint: Path) -> None:
    texts = ["a small library", "tools for the web", "many files of data " * 200]
    documents = [
        Document(file="f", row=i, text=text, reference=None, run=i) for i, text in enumerate(texts)
    ]
    settings = CorpusSettings(input="", output="", model=str(tiny_checkpoint))
    spec = load_spec(tiny_checkpoint)
    decoding = spec.resolve(Decoding(steps=4))
    speed = measure_speed(settings, documents, decoding, threads=1)
    assert speed.seconds_per_position > 0
    assert 0 < speed.answering.output_tokens <= (decoding.max_tokens or 0)
    assert 0 < speed.answering.forwards <= 8
    assert speed.spread >= 0
    assert speed.answering.forwards_spread == 0  # random weights never end: all take their steps


def sheet(accelerator: str = "h100", **changes: Any) -> Speed:
    model = changes.pop("model", "random:llada-8b")
    spec = load_spec(model)
    decoding = spec.resolve(Decoding(max_tokens=64, **changes.pop("decoding", {})))
    given: dict[str, Any] = {"batch": 64, "prompt_tokens": 512.0, "tokens_per_forward": None}
    return roofline_speed(
        spec,
        shape_of(model, spec, "bf16"),
        decoding,
        accelerator=accelerator,
        **{**given, **changes},
    )


def test_large_batches_of_a_large_model_are_bound_by_operations() -> None:
    """2 operations a parameter and position, at 40% of peak."""
    expected = 2 * 8.02e9 / (989e12 * 0.4)
    assert sheet().seconds_per_position == pytest.approx(expected, rel=0.02)
    faster = sheet().seconds_per_position / sheet("a100-80gb").seconds_per_position
    assert faster == pytest.approx(312 / 989, rel=0.01)


def test_one_row_with_a_cache_is_bound_by_the_weights() -> None:
    spec = load_spec("random:sdar-4b")
    speed = sheet(model="random:sdar-4b", batch=1, prompt_tokens=16.0)
    block, forwards = 4, round(speed.answering.forwards)
    shape = shape_of("random:sdar-4b", spec, "bf16")
    read = (forwards + 1) * shape.weight_bytes / (3350e9 * 0.7)
    seconds = speed.seconds_per_position * (16 + forwards * block)
    assert seconds == pytest.approx(read, rel=0.05)


def test_of_experts_only_the_chosen_compute() -> None:
    spec = load_spec("random:sdar-30b-a3b")
    shape = shape_of("random:sdar-30b-a3b", spec, "bf16")
    assert shape.active_parameters == pytest.approx(3.3e9, rel=0.1)
    assert shape.weight_bytes == pytest.approx(61e9, rel=0.05)


def test_more_tokens_a_forward_are_as_much_faster() -> None:
    two = sheet(tokens_per_forward=2.0)
    assert two.answering.forwards == 32
    assert "2 tokens a forward, as told" in two.assumptions


def test_what_does_not_fit_is_refused_with_the_bytes_it_needs() -> None:
    with pytest.raises(UsageError, match="accelerator with 61 GB"):
        sheet("a10g", model="random:sdar-30b-a3b", batch=1)
    with pytest.raises(UsageError, match="one of h200"):
        sheet("abacus")
    assert "l4" in ACCELERATORS
