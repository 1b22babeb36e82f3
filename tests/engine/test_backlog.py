"""How much work there is, how fast it is done, and what callers are told to wait."""

from __future__ import annotations

import pytest

from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.engine.backlog import LONGEST_S, SHORTEST_S, Outstanding, retry_after_s
from raydiff.engine.memory import Budget
from raydiff.errors import Overloaded
from raydiff.request import Backlog, Decoding, GenerationRequest, Lane


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load("simulated:8x4=0s,block=8", settings=EngineSettings(threads=1))


def request(engine: Engine, name: str, lane: Lane = "batch", tokens: int = 8) -> GenerationRequest:
    return engine.request((65,), Decoding(max_tokens=tokens), request_id=name, lane=lane)


def backlog(rate: float, interactive: float = 0.0, batch: float = 0.0) -> Backlog:
    left: dict[Lane, float] = {"interactive": interactive, "batch": batch}
    return Backlog(
        requests={lane: int(rows / 10) for lane, rows in left.items()},
        row_forwards=left,
        row_forwards_per_s=rate,
    )


def test_forwards_left_fall_with_every_forward_and_end_at_zero(engine: Engine) -> None:
    outstanding = Outstanding(EngineSettings(), engine.spec)
    outstanding.take([request(engine, "a", tokens=16), request(engine, "b", tokens=16)])
    left = [outstanding.backlog().row_forwards["batch"]]
    assert left == [2 * 2 * (1 + 4)]  # two blocks each: one encoding, four steps
    for _ in range(4):
        outstanding.advanced(["a", "b"])
        left.append(outstanding.backlog().row_forwards["batch"])
    assert left == [20, 18, 16, 14, 12]
    outstanding.remove("a", whole=True)
    outstanding.remove("b", whole=False)
    assert outstanding.backlog().row_forwards["batch"] == 0


def test_requests_that_end_early_make_the_next_ones_expected_shorter(engine: Engine) -> None:
    outstanding = Outstanding(EngineSettings(), engine.spec)
    outstanding.take([request(engine, "long")])
    before = outstanding.expected("long")
    for i in range(100):
        outstanding.take([request(engine, str(i))])
        outstanding.advanced([str(i)])
        outstanding.remove(str(i), whole=True)
    outstanding.take([request(engine, "again")])
    assert 1 <= outstanding.expected("again") < before / 2


def test_the_rate_is_that_of_as_many_rows_as_the_backlog_fills(engine: Engine) -> None:
    """An engine that had one row at a time is not taken to be slow with many."""
    outstanding = Outstanding(EngineSettings(max_rows=8), engine.spec)
    assert outstanding.backlog().row_forwards_per_s == 0
    outstanding.ran(1, 0.1)
    outstanding.ran(8, 0.1)
    assert outstanding.backlog().row_forwards_per_s == pytest.approx(10)
    outstanding.take([request(engine, str(i)) for i in range(20)])
    assert outstanding.backlog().row_forwards_per_s == pytest.approx(80)


def test_the_wait_is_the_work_that_has_to_be_done_before_there_is_room() -> None:
    assert retry_after_s(backlog(10.0, batch=100), "batch", 5) == pytest.approx(5.0)
    assert retry_after_s(backlog(10.0, batch=100, interactive=50), "batch", 5) == (
        pytest.approx(10.0)
    )
    assert retry_after_s(backlog(10.0, batch=100, interactive=50), "interactive", 5) == (
        pytest.approx(5.0)
    )


def test_the_wait_is_never_nothing_and_never_for_ever() -> None:
    assert retry_after_s(backlog(1e6, batch=100), "batch", 1) == SHORTEST_S
    assert retry_after_s(backlog(1e-3, batch=100), "batch", 1) == LONGEST_S
    assert SHORTEST_S < retry_after_s(backlog(0.0, batch=100), "batch", 1) < LONGEST_S


def test_a_refusal_says_so(engine: Engine) -> None:
    outstanding = Outstanding(EngineSettings(max_rows=1, max_queued=3), engine.spec)
    outstanding.ran(1, 0.5)
    outstanding.take([request(engine, str(i)) for i in range(4)])
    with pytest.raises(Overloaded, match="limit of 4") as caught:
        outstanding.take([request(engine, "x"), request(engine, "y")])
    assert caught.value.retry_after_s == pytest.approx(2 * 5 * 0.5)


def test_a_budget_that_was_cut_grows_again_and_slower_after_each_shortage() -> None:
    budget = Budget(1600)
    budget.hold("a", 1600)
    budget.halve()
    assert budget.total_bytes == 800
    budget.ran(59.0)
    assert budget.total_bytes == 800
    budget.ran(1.0)
    assert budget.total_bytes == 900
    budget.halve()
    budget.ran(60.0)
    cut = budget.total_bytes
    budget.ran(60.0)
    assert budget.total_bytes == cut + 100
    for _ in range(100):
        budget.ran(3600.0)
    assert budget.total_bytes == 1600
