"""`raydiff plan`: what it says, and what it refuses. No cluster here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.cli import main


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.parquet"
    texts = [f"a small library to read file {i} of the web" for i in range(60)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=20)
    return path


def plan(capsys: pytest.CaptureFixture[str], *given: Any) -> dict[str, Any]:
    assert main(["plan", *map(str, given), "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_a_measured_plan(
    corpus: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", tiny_checkpoint, "--sample", 30, "--measured", 6, "--steps", 4]
    flags += ["--replicas", 2, "--price-per-hour", 3]
    report = plan(capsys, corpus, *flags)
    assert (report["documents"], report["sample"]) == (60, 30)
    found = report["estimates"]
    assert found["requests"] == {"value": 60, "low": 60, "high": 60}
    assert found["prompt_tokens"]["low"] <= found["prompt_tokens"]["value"]
    assert report["hours"]["value"] == pytest.approx(report["replica_hours"]["value"] / 2)
    assert report["cost"]["value"] == pytest.approx(3 * report["replica_hours"]["value"])
    assert "measured here on 6 documents" in report["speed"]["source"]


def test_a_plan_from_a_data_sheet_with_a_deadline(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--model", "random:sdar-4b", "--accelerator", "l4", "--max-tokens", 64]
    report = plan(capsys, corpus, *model, "--within-hours", 0.001)
    replicas = report["advice"]["replicas"]
    assert replicas == report["replicas"] > 1
    assert report["hours"]["high"] <= 0.001
    assert any("tokenizer of bytes" in said for said in report["speed"]["assumptions"])


def test_the_table_names_estimates_and_their_source(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", str(corpus), "--model", "random:sdar-4b", "--accelerator", "h100"]
    assert main([*command, "--price-per-hour", "2"]) == 0
    shown = capsys.readouterr().out
    for said in ("60 documents in 1 files", "prompt tokens", "hours with 1 replica", "cost"):
        assert said in shown
    assert "a model of h100 by its data sheet" in shown
    assert "--shard-rows 16" in shown


def test_the_estimate_beside_a_run(
    corpus: Path, tmp_path: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {
        "status": "done",
        "model": str(tiny_checkpoint),
        "rows": 60,
        "prompt_tokens": 1000,
        "output_tokens": 300,
        "forwards": 240,
        "session": {"documents": 60, "seconds": 2.0},
        "settings": {"replicas": 3},
    }
    (tmp_path / "_run.json").write_text(json.dumps(run))
    flags = ["--model", str(tiny_checkpoint), "--measured", "4", "--compare", str(tmp_path)]
    report = plan(capsys, corpus, *flags)
    assert report["replicas"] == 3
    assert [row["what"] for row in report["comparison"]["rows"]] == [
        "documents",
        "prompt_tokens",
        "output_tokens",
        "forwards",
        "seconds",
    ]
    assert report["comparison"]["rows"][0]["error"] == 0


def test_a_plan_of_labels_writes_labels_only(
    corpus: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", tiny_checkpoint, "--measured", 6, "--task", "label"]
    few = plan(capsys, corpus, *flags, "--labels", "web, data")
    free = plan(capsys, corpus, "--model", tiny_checkpoint, "--measured", 6)
    assert few["estimates"]["output_tokens"]["value"] < free["estimates"]["output_tokens"]["value"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--sample", "0"], "sample: expected"),
        (["--efficiency", "0"], "efficiency: expected a number above 0"),
        (["--within-hours", "-1"], "within_hours: expected"),
        (["--accelerator", "abacus"], "accelerator: expected one of"),
        (["--benchmark", "absent.json"], "absent.json"),
        (["--compare", "absent"], "compare: expected the directory of a finished run"),
        (["--text-column", "body"], "text_column: "),
        (["--benchmark", "a", "--accelerator", "l4"], "accelerator: expected none"),
    ],
)
def test_impossible_flags_are_refused_by_name(
    corpus: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    assert main(["plan", str(corpus), *flags]) == 2
    assert said in capsys.readouterr().err
