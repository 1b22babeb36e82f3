"""Sums of an engine's work."""

from __future__ import annotations

import pytest

from raydiff.engine.counts import Work, WorkCounter
from raydiff.request import StepStats
from tests.engine.conftest import ListRecorder


def step(**fields: float) -> StepStats:
    plain: dict[str, float] = {"rows": 2, "positions": 30, "forward_s": 0.5, "committed_tokens": 0}
    return StepStats(kind="encode", **{**plain, **fields})  # type: ignore[arg-type]


def test_busy_seconds_are_the_seconds_of_forwards() -> None:
    counter = WorkCounter(ListRecorder())
    counter.on_step(step(forward_s=0.5))
    counter.on_step(step(forward_s=0.25))
    assert counter.work.busy_s == 0.75


def test_every_record_goes_on() -> None:
    inner = ListRecorder()
    WorkCounter(inner).on_step(step())
    assert len(inner.steps) == 1


def test_the_difference_of_two_readings_is_what_lies_between_them() -> None:
    counter = WorkCounter(ListRecorder())
    counter.on_step(step())
    before = counter.work
    counter.on_step(step(padded_positions=10, rows=3))
    between = counter.work - before
    assert between == Work(busy_s=0.5, forwards=1, rows=3, positions=30, padding=10)
    assert before + between == counter.work


def test_shares_are_of_all_places_and_zero_where_there_are_none() -> None:
    assert Work(positions=30, padding=10).padding_share == pytest.approx(0.25)
    assert Work(context=60, context_padding=20).context_padding_share == pytest.approx(0.25)
    assert Work().padding_share == Work().context_padding_share == Work().rows_per_forward == 0.0
