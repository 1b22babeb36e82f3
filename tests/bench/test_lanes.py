"""`raydiff bench lanes` on a simulated model that takes no time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raydiff.bench.lanes import Phase
from raydiff.cli import main
from raydiff.engine.trace import ForwardRecord
from raydiff.request import Lane


def record(tick: int, lane: Lane, rows: int, waited: int | None = None) -> ForwardRecord:
    return ForwardRecord(
        tick=tick,
        kind="denoise",
        lane=lane,
        interactive_rows=int(lane == "interactive"),
        batch_rows=rows,
        interactive_ready=int(lane == "interactive"),
        interactive_waiting=0,
        batch_waiting=0,
        waited=waited,
        began_s=float(tick),
        seconds=0.5,
    )


def test_a_phase_sums_up_its_trace() -> None:
    trace = [record(0, "batch", 8), record(1, "interactive", 2, 1), record(2, "batch", 6)]
    phase = Phase(seconds=4.0, first_text_s=[1.0, 3.0], records=trace)
    assert phase.busy("batch") == 0.25
    assert phase.busy("interactive") == 0.125
    assert phase.batch_rows_per_s == 4.0
    assert phase.longest_wait == 1
    assert phase.passed_over() == 0
    assert phase.first_text(50) == 2.0


def test_a_report_has_all_phases_and_what_they_are_compared_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raydiff.bench.lanes.LEAD_S", 0.05)
    file = tmp_path / "report.json"
    arguments = ["bench", "lanes", "--model", "simulated:8x4=8ms", "--requests", "4"]
    arguments += ["--repeats", "1", "--max-rows", "8", "--prompt-tokens", "20"]
    assert main([*arguments, "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert [row["phase"] for row in report["phases"]] == ["interactive", "batch", "both"]
    alone, batch, both = report["phases"]
    assert alone["batch_rows_per_s"] == 0 < both["batch_rows_per_s"]
    assert batch["first_text_p95_s"] is None
    assert report["summary"]["longest_wait_in_batch_forwards"] <= 1
    assert report["summary"]["first_text_p95_ratio"] > 0


def test_a_share_that_leaves_nothing_idle_is_a_usage_error() -> None:
    assert main(["bench", "lanes", "--share", "1.5"]) == 2
