"""What forwards cost over their size, learned from those that ran."""

from __future__ import annotations

import pytest

from raydiff.engine.costs import Costs


def costs(*forwards: tuple[int, float]) -> Costs:
    made = Costs()
    for size, seconds in forwards:
        made.observe("k", size, seconds)
    return made


FLAT = ((1, 1.0), (32, 1.05), (64, 1.1))
"""A device bound by memory."""
STEEP = ((1, 1.0), (32, 32.0), (64, 64.0))
"""One bound by arithmetic."""


def test_where_rows_are_free_all_ride_and_where_they_are_not_none_does() -> None:
    assert costs(*FLAT).most("k", 1, 64, 0.25) == 64
    assert costs(*STEEP).most("k", 1, 64, 0.25) == 1
    assert costs(*STEEP).most("k", 20, 64, 0.25) == 25


def test_without_a_measurement_rows_are_taken_to_cost_their_share() -> None:
    assert Costs().most("k", 4, 64, 0.25) == 5
    assert Costs().seconds("k", 4) is None


def test_batch_forwards_get_shorter_where_that_costs_next_to_no_speed() -> None:
    assert costs(*FLAT).least("k", 64, 0.05) > 58
    assert costs(*STEEP).least("k", 64, 0.05) == 1
    assert costs((1, 1.0), (32, 1.0), (64, 2.0)).least("k", 64, 0.05) == 31


def test_a_size_that_never_ran_is_tried_before_it_is_judged() -> None:
    assert costs((1, 1.0), (2, 1.0)).least("k", 64, 0.05) == 64
    assert costs((1, 1.0), (64, 2.0)).least("k", 64, 0.05) == 32
    assert costs((1, 1.0), (2, 1.0)).least("k", 64, 0.05, tries=False) == 2


def test_seconds_lie_between_those_that_were_measured() -> None:
    known = costs((10, 1.0), (30, 3.0))
    assert known.seconds("k", 20) == pytest.approx(2.0)
    assert known.seconds("k", 60) == pytest.approx(6.0)
    assert known.seconds("k", 5) == pytest.approx(0.5)


def test_one_slow_forward_is_soon_forgotten() -> None:
    known = costs((8, 100.0), *[(8, 1.0)] * 20)
    assert known.seconds("k", 8) == pytest.approx(1.0, rel=0.05)
