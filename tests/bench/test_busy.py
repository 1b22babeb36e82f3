"""How busy replicas are."""

from __future__ import annotations

from typing import Any, cast

import pytest

from raydiff.bench.busy import Reading, Stretch, readings, steady_stretch
from raydiff.client import Client
from raydiff.engine.counts import Work


def reading(now_s: float, requests: int, busy_s: float, replicas: int = 1) -> Reading:
    return Reading(
        now_s=now_s, replicas=replicas, requests=requests, rows=4, work=Work(busy_s=busy_s)
    )


def test_the_steady_state_leaves_out_how_it_began_and_how_it_ended() -> None:
    stretch = steady_stretch(
        [
            reading(0.0, 0, 0.0),
            reading(1.0, 4, 0.1),
            reading(2.0, 9, 1.0),
            reading(3.0, 5, 1.9),
            reading(9.0, 3, 2.0),
        ]
    )
    assert stretch is not None
    assert stretch.seconds == 2.0
    assert stretch.busy_fraction == pytest.approx(0.9)


def test_a_replica_that_ran_dry_in_between_counts_as_idle() -> None:
    stretch = steady_stretch([reading(0.0, 8, 0.0), reading(5.0, 0, 1.0), reading(10.0, 8, 1.0)])
    assert stretch is not None
    assert stretch.busy_fraction == pytest.approx(0.1)


def test_without_a_full_batch_there_is_no_steady_state() -> None:
    assert steady_stretch([reading(0.0, 3, 0.0), reading(1.0, 3, 1.0)]) is None
    assert steady_stretch([reading(0.0, 8, 0.0)]) is None


def test_two_replicas_are_busy_when_both_are() -> None:
    stretch = Stretch.between(reading(0.0, 8, 0.0, replicas=2), reading(2.0, 8, 2.0, replicas=2))
    assert stretch.busy_fraction == pytest.approx(0.5)


def test_a_reading_adds_up_its_replicas() -> None:
    one = {"now_s": 1.0, "requests": 3, "max_rows": 4, "work": {"busy_s": 0.5, "forwards": 2}}
    found = Reading.of([one, {**one, "now_s": 3.0}])
    assert (found.now_s, found.requests, found.rows, found.replicas) == (2.0, 6, 8, 2)
    assert found.work == Work(busy_s=1.0, forwards=4)


class Counted:
    """A fleet of one replica, which has done so many forwards."""

    def __init__(self) -> None:
        self.forwards = 3

    async def describe(self, *, timeout_s: float) -> list[dict[str, Any]]:
        work = {"forwards": self.forwards}
        return [{"now_s": 0.0, "requests": 0, "max_rows": 4, "work": work}]


def test_all_work_of_a_block_lies_between_its_first_and_last_reading_however_short_it_is() -> None:
    replica = Counted()
    with readings(cast(Client, replica), every_s=60.0) as taken:
        replica.forwards = 10
    assert (taken[-1].work - taken[0].work).forwards == 7
