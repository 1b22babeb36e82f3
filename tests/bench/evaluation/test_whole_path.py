"""`jobs/evaluate.py` as a job runs it: a real cluster, a real app, a tiny model."""

from __future__ import annotations

import json
import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

JOB = Path(__file__).parents[3] / "jobs" / "evaluate.py"


@pytest.fixture(scope="module")
def job() -> ModuleType:
    spec = spec_from_file_location("evaluate_job", JOB)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    texts = [f"A small library to read and write data of file {i}." for i in range(12)]
    long = "Tools for the web with many files of data. " * 120
    table = pa.table({"text": [*texts, long], "summary": ["library for data"] * 13})
    pq.write_table(table, tmp_path / "corpus.parquet")
    return tmp_path / "corpus.parquet"


@pytest.mark.usefixtures("ray_cluster")
def test_settings_are_compared_through_the_app_and_the_fastest_is_named(
    job: ModuleType, source: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = source.parent / "out"
    command = [str(source), str(output), "--model", str(tiny_checkpoint), "--rounds", "2"]
    command += ["--setting", "slow: steps=16", "--setting", "quick: steps=2"]
    command += ["--reference-column", "summary", "--max-loss", "1", "--sheet", "4", "--json"]
    assert job.main(command) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out.splitlines()[-1])
    assert captured.err.count("round ") == 4
    assert "Texts of documents are written" in captured.err
    found = {setting["name"]: setting for setting in report["settings"]}
    assert found["slow"]["failed"] == found["quick"]["failed"] == 0
    assert found["slow"]["forwards"] > found["quick"]["forwards"]
    # the same seed gives the same text, round after round and in any batch
    assert found["slow"]["same_text"] == found["quick"]["same_text"] == 1
    assert report["fastest"] in found
    scores = pq.read_table(output / "scores.parquet")
    assert scores.num_rows == 2 * 13
    assert {"report.md", "quality_over_speed.png", "sheet.csv"} <= set(os.listdir(output))
    assert "library to read" not in (output / "report.md").read_text()


def test_impossible_flags_are_refused_before_a_cluster_is_touched(
    job: ModuleType, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(source.parent / "out")
    assert job.main([str(source), output, "--setting", "steps=0"]) == 2
    assert "steps: expected an integer of at least 1" in capsys.readouterr().err
    assert job.main([str(source), output, "--redact", "absent:hook"]) == 2
    assert job.main([str(source), output, "--reference-column", "gold"]) == 2
    assert not Path(output).exists()


def test_in_a_submitted_job_the_output_must_be_absolute(
    job: ModuleType,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert job.main([str(source), "out"]) == 2
    assert "absolute path" in capsys.readouterr().err
