"""Comparing two reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raydiff.bench.compare import compare_reports, read_report
from raydiff.bench.report import table, write_report
from raydiff.errors import InputError, UsageError


def _report(speed: float, **changes: Any) -> dict[str, Any]:
    contender = {"name": "engine", "batch": 32, "output_tokens_per_s": speed, "rougeL": 30.0}
    return {
        "bench": "engine",
        "dtype": "bfloat16",
        "circumstances": {"cores": 2},
        "contenders": [contender],
        **changes,
    }


def test_each_shared_figure_has_its_ratio() -> None:
    rows = compare_reports(_report(100.0), _report(150.0))["rows"]
    assert {row["what"]: row["ratio"] for row in rows} == {
        "engine 32 output_tokens_per_s": 1.5,
        "engine 32 rougeL": 1.0,
    }


def test_what_makes_two_runs_less_comparable_is_said() -> None:
    other = _report(1.0, dtype="float32", circumstances={"cores": 4})
    warnings = compare_reports(_report(1.0), other)["warnings"]
    assert warnings == ["dtype: bfloat16 and float32", "cores: 2 and 4"]


def test_reports_of_different_benchmarks_are_refused() -> None:
    with pytest.raises(UsageError, match="bench: expected engine, got 'serve'"):
        compare_reports(_report(1.0), _report(1.0, bench="serve"))
    with pytest.raises(UsageError, match="share no figure"):
        compare_reports(_report(1.0), _report(1.0, contenders=[]))


def test_a_report_survives_writing_and_reading(tmp_path: Path) -> None:
    write_report(_report(1.0), tmp_path / "a.json")
    assert read_report(tmp_path / "a.json") == _report(1.0)
    (tmp_path / "b.json").write_text(json.dumps([1]))
    with pytest.raises(InputError, match="key 'bench'"):
        read_report(tmp_path / "b.json")
    with pytest.raises(InputError, match="JSON report"):
        read_report(tmp_path / "missing.json")


def test_a_table_aligns_text_left_and_numbers_right() -> None:
    shown = table([{"name": "a", "n": 1234.5}, {"name": "bcd", "n": 0.25}], ["name", "n"])
    assert shown == "name      n\na     1,234\nbcd    0.25"
