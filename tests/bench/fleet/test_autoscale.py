"""What a rising and falling load says of an autoscaling policy."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from raydiff.bench.fleet.autoscale import AutoscaleBench, Call, direction_changes, summary
from raydiff.bench.fleet.host import State
from raydiff.bench.fleet.plot import replicas_svg
from raydiff.cli.bench.fleet import phases
from raydiff.errors import UsageError

BENCH = AutoscaleBench(model="simulated:4x16=2s", phases=((1, 10.0), (4, 10.0)))
CALLS = [
    Call(phase=0, sent_s=0.0, done_s=1.0, status=200),
    Call(phase=0, sent_s=6.0, done_s=9.0, status=200),
    Call(phase=1, sent_s=11.0, done_s=12.0, status=503),
    Call(phase=1, sent_s=16.0, done_s=18.0, status=200),
]
STATES = [
    State(at_s=0.0, running=1, starting=0),
    State(at_s=10.0, running=1, starting=2),
    State(at_s=20.0, running=3, starting=0),
]


def found() -> dict[str, Any]:
    return summary(BENCH, "backlog", CALLS, STATES)


def test_failures_and_replica_seconds_are_counted() -> None:
    row = found()
    assert (row["requests"], row["failed"]) == (4, 1)
    assert row["replica_seconds"] == 10 * 1 + 10 * 3
    assert (row["most_replicas"], row["last_replicas"]) == (3, 3)


def test_percentiles_are_of_a_phase_and_of_its_later_half() -> None:
    first, second = found()["phases"]
    assert first["p50_s"] == 2.0
    assert first["late_p50_s"] == 3.0
    assert second["p95_s"] == second["late_p95_s"] == 2.0


@pytest.mark.parametrize(
    ("counts", "changes"), [([1, 1, 3, 8, 8, 2, 1], 1), ([1, 2, 1, 2], 2), ([4, 4], 0), ([], 0)]
)
def test_a_change_of_direction_is_growth_that_turns_to_shrinking_or_back(
    counts: list[int], changes: int
) -> None:
    assert direction_changes(counts) == changes


def test_the_plot_has_a_line_for_each_policy_and_one_for_the_load() -> None:
    report = {
        "model": BENCH.model,
        "phases": [{"clients": c, "seconds": s} for c, s in BENCH.phases],
        "policies": [found(), {**found(), "policy": "requests"}],
    }
    chart = ElementTree.fromstring(replicas_svg(report))
    assert len([part for part in chart if part.tag.endswith("polyline")]) == 3


def test_phases_are_clients_for_seconds() -> None:
    assert phases("1:30,40:1.5") == ((1, 30.0), (40, 1.5))


@pytest.mark.parametrize("text", ["", "1", "1:2:3", "a:1", "1:0", "-1:5"])
def test_phases_that_read_otherwise_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="CLIENTS:SECONDS"):
        phases(text)


def test_only_simulated_models_make_a_fleet() -> None:
    with pytest.raises(UsageError, match="simulated"):
        AutoscaleBench(model="summarizer")
