"""`raydiff bench shapes`: what it measures, and that it always comes to an end in time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from raydiff.bench.shapes import ShapesBench, run_shapes_bench
from raydiff.cli import main

TINY = ("random:tiny-llada", "random:tiny-sdar", "random:tiny-diffusion-gemma")


@pytest.fixture
def bench() -> ShapesBench:
    return ShapesBench(
        models=TINY,
        batches=(1, 3),
        prompt_tokens=9,
        max_tokens=8,
        device="cpu",
        dtype="fp32",
        threads=1,
    )


def test_every_model_is_measured_at_every_batch(bench: ShapesBench) -> None:
    report = run_shapes_bench(bench)
    points = report["points"]
    assert [(p["model"], p["batch"]) for p in points] == [(m, b) for m in TINY for b in (1, 3)]
    for point in points:
        assert point["complete"]
        assert point["output_tokens"] == point["batch"] * point["max_tokens"]
        assert point["output_tokens_per_s"] == point["output_tokens"] / point["seconds"]
        assert point["denoise_s_per_forward"] > 0
    assert report["circumstances"]["commit"]


def test_rows_of_a_batch_share_their_forwards(bench: ShapesBench) -> None:
    one, three = run_shapes_bench(replace(bench, models=TINY[:1]))["points"]
    assert one["forwards"] == three["forwards"] == {"denoise": 8}
    assert one["tokens_per_forward"] == three["tokens_per_forward"] == 1.0


def test_what_does_not_fit_the_time_is_cut(bench: ShapesBench) -> None:
    report = run_shapes_bench(replace(bench, models=TINY[:1], limit_s=1e-6))
    assert [point["complete"] for point in report["points"]] == [False, False]
    assert all(point["output_tokens"] < 8 for point in report["points"])


def test_a_model_that_cannot_be_built_does_not_stop_the_others(bench: ShapesBench) -> None:
    report = run_shapes_bench(replace(bench, models=("random:nothing", TINY[0])))
    failed, *others = report["points"]
    assert "random:nothing" in failed["error"]
    assert len(others) == 2


def test_the_command_writes_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shapes.json"
    arguments = ["bench", "shapes", "--models", TINY[0], "--batch", "2", "--max-tokens", "4"]
    arguments += ["--prompt-tokens", "5", "--device", "cpu", "--dtype", "fp32", "--threads", "1"]
    assert main([*arguments, "--json", str(file)]) == 0
    (point,) = json.loads(file.read_text())["points"]
    assert (point["model"], point["output_tokens"]) == (TINY[0], 8)
    assert TINY[0] in capsys.readouterr().out


@pytest.mark.parametrize("name", ["batch", "prompt-tokens", "max-tokens"])
def test_impossible_settings_are_refused_by_name(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "shapes", f"--{name}", "0"]) == 2
    assert capsys.readouterr().err.startswith(f"raydiff: {name}: expected")
