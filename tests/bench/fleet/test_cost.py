"""What a fleet costs, from readings."""

from __future__ import annotations

import pytest

from raydiff.bench.fleet.cost import FleetBench, steady_rows_per_s
from raydiff.bench.serving.cpu import Process, descendants
from raydiff.bench.serving.generator import Generated
from raydiff.bench.serving.loads import Outcome
from raydiff.errors import ModelError, UsageError


def generated(ends: list[float], prompts: int = 2) -> Generated:
    outcomes = [
        Outcome(
            index=i, prompts=prompts, due_s=0.0, sent_s=0.0, first_s=None, done_s=end, status=200,
            tokens=1,
        )
        for i, end in enumerate(ends)
    ]  # fmt: skip
    return Generated(outcomes=outcomes, cpu_s=0.0)


def test_throughput_is_that_of_the_time_in_which_all_clients_are_busy() -> None:
    slow_start, slow_end = [5.0, 5.0], [30.0, 60.0]
    steady = [10.0, 11.0, 12.0, 13.0, 14.0]
    assert steady_rows_per_s(generated([*slow_start, *steady, *slow_end]), clients=2) == 2.0


def test_a_process_tree_has_children_and_theirs() -> None:
    found = {
        2: Process(parent=1, title="a", cpu_s=0),
        3: Process(parent=2, title="b", cpu_s=0),
        4: Process(parent=9, title="c", cpu_s=0),
    }
    assert descendants(1, found) == [2, 3]


def test_a_fleet_is_of_simulated_replicas_called_in_a_known_way() -> None:
    with pytest.raises(ModelError, match="ROWSxFORWARDS"):
        FleetBench(model="summarizer")
    with pytest.raises(UsageError, match="way"):
        FleetBench(model="simulated:4x4=1s", way="carrier pigeon")
