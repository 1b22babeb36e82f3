"""Tenants of a lane take turns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.engine.backlog import Outstanding
from raydiff.engine.canvas import Canvas
from raydiff.engine.fairness import RowTurns, TurnQueue
from raydiff.errors import Overloaded
from raydiff.request import Decoding, GenerationRequest, Lane


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load("simulated:8x4=0s,block=8", settings=EngineSettings(threads=1))


def request(
    engine: Engine, name: str, tenant: str, lane: Lane = "batch", tokens: int = 8
) -> GenerationRequest:
    made = engine.request((65, 66), Decoding(max_tokens=tokens), request_id=name, lane=lane)
    return replace(made, tenant=tenant)


def canvas(engine: Engine, name: str, tenant: str) -> Canvas:
    return Canvas(request(engine, name, tenant), engine.spec, engine.tokenizer)


def names(canvases: list[Canvas]) -> list[str]:
    return [c.request_id for c in canvases]


def test_ten_thousand_queued_requests_delay_anothers_first_by_one_turn(engine: Engine) -> None:
    queue = TurnQueue()
    big = canvas(engine, "x", "big")
    for i in range(10_000):
        copied = Canvas.__new__(Canvas)
        copied.__dict__ |= {**big.__dict__, "request": replace(big.request, request_id=f"b{i}")}
        queue.add(copied)
    for _ in range(50):
        queue.take(4.0)
    queue.add(canvas(engine, "first", "small"))
    assert "first" in names([queue.take(4.0) for _ in range(2)])


def test_turns_count_forwards_and_not_requests(engine: Engine) -> None:
    """Who asks for long texts gets fewer of them."""
    queue = TurnQueue()
    for i in range(40):
        queue.add(canvas(engine, f"l{i}", "long"))
        queue.add(canvas(engine, f"s{i}", "short"))
    taken: Counter[str] = Counter()
    for _ in range(25):
        first = queue.first()
        assert first is not None
        taken[queue.take(16.0 if first.request.tenant == "long" else 4.0).request.tenant] += 1
    assert taken == {"long": 5, "short": 20}


def test_what_a_request_took_in_truth_is_settled(engine: Engine) -> None:
    queue = TurnQueue()
    for i in range(4):
        for tenant in ("a", "b"):
            queue.add(canvas(engine, f"{tenant}{i}", tenant))
    assert names([queue.take(4.0), queue.take(4.0)]) == ["a0", "b0"]
    queue.settle("a", 100.0)
    order = names([queue.take(4.0) for _ in range(6)])
    assert order == ["a1", "b1", "b2", "b3", "a2", "a3"]


def test_one_tenants_requests_are_served_in_order(engine: Engine) -> None:
    queue = TurnQueue()
    for i in range(5):
        queue.add(canvas(engine, str(i), "a"))
    third = canvas(engine, "gone", "a")
    queue.add(third)
    assert queue.remove(third)
    assert not queue.remove(third)
    first = queue.take(4.0)
    queue.give_back(first, 4.0)
    assert names([queue.take(4.0) for _ in range(5)]) == ["0", "1", "2", "3", "4"]
    assert queue.first() is None
    assert not len(queue)


def test_rows_of_a_full_forward_are_shared_between_tenants(engine: Engine) -> None:
    turns = RowTurns()
    rows = [canvas(engine, f"a{i}", "a") for i in range(6)] + [canvas(engine, "b", "b")]
    served: Counter[str] = Counter()
    for _ in range(12):
        served.update(c.request.tenant for c in turns.pick(rows, 2))
    assert served == {"a": 12, "b": 12}
    assert turns.pick(rows, 7) == rows


def test_another_tenants_first_request_joins_rows_that_one_tenant_fills() -> None:
    engine = Engine.load("simulated:8x4=0s,block=8", settings=EngineSettings(max_rows=2, threads=1))
    for i in range(10):
        engine.submit(request(engine, f"a{i}", "a", tokens=800))
    for _ in range(4):
        engine.step()
    engine.submit(request(engine, "b", "b"))
    for _ in range(16):
        if any(e.completion and e.request_id == "b" for e in engine.step()):
            break
    else:
        pytest.fail("the other tenant had to wait for the first one's long texts")


# Bounded queues.


def fill(outstanding: Outstanding, engine: Engine, tenant: str, count: int) -> int:
    """Requests taken before the first refusal, at most `count`."""
    for i in range(count):
        try:
            outstanding.take([request(engine, f"{tenant}{i}", tenant)])
        except Overloaded:
            return i
    return count


def test_one_tenant_alone_fills_the_queue_and_another_still_has_its_share(engine: Engine) -> None:
    outstanding = Outstanding(EngineSettings(max_rows=2, max_queued=10), engine.spec)
    assert fill(outstanding, engine, "a", 50) == 12
    assert fill(outstanding, engine, "b", 50) == 6
    assert fill(outstanding, engine, "c", 50) == 4
    assert fill(outstanding, engine, "a", 1) == 0


def test_a_lane_that_is_full_leaves_the_other_open(engine: Engine) -> None:
    outstanding = Outstanding(EngineSettings(max_rows=1, max_queued=1), engine.spec)
    assert fill(outstanding, engine, "a", 5) == 2
    outstanding.take([request(engine, "i", "a", lane="interactive")])
    assert outstanding.backlog().requests == {"interactive": 1, "batch": 2}


def test_a_refused_call_leaves_nothing_behind(engine: Engine) -> None:
    outstanding = Outstanding(EngineSettings(max_rows=1, max_queued=1), engine.spec)
    with pytest.raises(Overloaded):
        outstanding.take([request(engine, str(i), "a") for i in range(3)])
    assert outstanding.backlog().requests["batch"] == 0
    assert fill(outstanding, engine, "a", 5) == 2
