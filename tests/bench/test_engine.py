"""`raydiff bench engine` and `steps`: what is measured, and that it adds up."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydiff.bench.engine import Contender, EngineBench, Run, ratios, run_engine_bench
from raydiff.bench.quality import rouge
from raydiff.bench.steps import StepsBench, plot, run_steps_bench
from raydiff.request import Decoding


@pytest.fixture
def bench(corpus: Path, tiny_checkpoint: Path) -> EngineBench:
    return EngineBench(
        input=str(corpus),
        model=str(tiny_checkpoint),
        batches=(1, 3),
        steps=4,
        dtype="fp32",
        threads=1,
        repeats=2,
    )


def test_all_contenders_write_the_same_tokens_at_equal_steps(bench: EngineBench) -> None:
    report = run_engine_bench(bench)
    by_key = {(c["name"], c["batch"]): c for c in report["contenders"]}
    assert by_key.keys() == {
        (name, batch) for name in ("engine", "engine-threshold", "recompute") for batch in (1, 3)
    }
    equal = [c for c in report["contenders"] if c["name"] != "engine-threshold"]
    assert len({c["output_tokens"] for c in equal}) == 1
    assert len({c["rougeL"] for c in equal}) == 1
    assert all(len(c["seconds"]) == 2 for c in report["contenders"])


def test_a_report_says_what_it_was_measured_on(bench: EngineBench) -> None:
    report = run_engine_bench(bench)
    assert report["circumstances"]["processor"]
    assert report["circumstances"]["versions"]["torch"]
    assert "commit" in report["circumstances"]
    assert report["dtype"] == "float32"
    assert report["threads"] == 1
    assert report["workload"]["documents"] == 5


def test_ratios_are_medians_over_rounds_of_the_same_round() -> None:
    def contender(name: str, batch: int, seconds: list[float]) -> Contender:
        made = Contender(name=name, batch=batch, decoding=Decoding(), generate=lambda w: made_run)
        made.seconds = seconds
        made.run = made_run
        return made

    made_run = Run(texts=[], tokens=12, forwards=1)
    found = {
        (r["of"], r["over"]): r["ratio"]
        for r in ratios(
            [
                contender("engine", 1, [2.0, 2.0, 2.0]),
                contender("engine-threshold", 1, [1.0, 1.0, 1.0]),
                contender("recompute", 1, [8.0, 6.0, 4.0]),
                contender("engine", 32, [1.0, 2.0, 1.0]),
                contender("engine-threshold", 32, [0.5, 0.5, 0.5]),
                contender("recompute", 32, [4.0, 4.0, 3.0]),
            ]
        )
    }
    assert found["engine at batch 1", "recompute at batch 1"] == pytest.approx(3.0)
    assert found["engine at batch 32", "recompute at batch 32"] == pytest.approx(3.0)
    assert found["engine at batch 32", "engine at batch 1"] == pytest.approx(2.0)
    assert found["engine-threshold at batch 32", "engine at batch 1"] == pytest.approx(4.0)


def test_rouge_of_a_text_with_itself_is_100() -> None:
    assert rouge(["a web server"], ["a web server"]) == {
        "rouge1": 100,
        "rouge2": 100,
        "rougeL": 100,
    }
    assert rouge(["web x"], ["a web server b"])["rouge1"] == pytest.approx(33.33)


def test_fewer_steps_take_fewer_forwards(
    corpus: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    bench = StepsBench(
        input=str(corpus),
        model=str(tiny_checkpoint),
        steps=(1, 8),
        thresholds=(0.5,),
        dtype="fp32",
        threads=1,
    )
    report = run_steps_bench(bench)
    names = [point["decoding"] for point in report["points"]]
    assert names == ["1 steps", "8 steps", "threshold 0.5"]
    one, eight, _ = (point["tokens_per_forward"] for point in report["points"])
    assert one > eight
    plot(report, str(tmp_path / "sweep.png"))
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
