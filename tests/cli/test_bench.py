"""`raydiff bench` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.cli import main


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.parquet"
    table = pa.table({"text": ["files of data", "tools for the web"], "summary": ["files", "web"]})
    pq.write_table(table, path)
    return path


def test_the_report_is_written_or_printed_last_and_can_be_compared(
    corpus: Path, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "engine", "--input", str(corpus), "--model", str(tiny_checkpoint)]
    arguments += ["--batch", "2", "--steps", "4", "--dtype", "fp32", "--threads", "1"]
    arguments += ["--repeats", "1"]
    report = tmp_path / "report.json"
    assert main([*arguments, "--json", str(report)]) == 0
    assert "engine at batch 2" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["bench"] == json.loads(report.read_text())["bench"] == "engine"

    assert main(["bench", "compare", str(report), str(report)]) == 0
    shown = capsys.readouterr().out
    assert "engine 2 4 output_tokens_per_s" in shown
    assert "differs" not in shown


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        (["engine", "--repeats", "0"], "repeats"),
        (["engine", "--batch", "4,0"], "batch"),
        (["serve", "--clients", "0"], "clients"),
        (["corpus", "--repeats", "0"], "repeats"),
        (["engine", "--input", "missing.parquet"], "missing.parquet"),
        (["steps", "--steps", "0"], "steps"),
    ],
)
def test_impossible_settings_are_refused_by_name(
    arguments: list[str],
    param: str,
    tiny_checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", *arguments, "--model", str(tiny_checkpoint)]) == 2
    assert capsys.readouterr().err.startswith(f"raydiff: {param}: expected")
