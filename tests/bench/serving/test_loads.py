"""Open and closed loops over a caller that only takes time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from raydiff.bench.serving.loads import (
    Answer,
    Ask,
    Load,
    generate_load,
    make_asks,
    split_load,
)


class SlowCaller:
    """Answers one request at a time, each after `service_s`."""

    def __init__(self, service_s: float, at_a_time: int = 1) -> None:
        self._service_s = service_s
        self._free = asyncio.Semaphore(at_a_time)
        self.in_flight = self.most_in_flight = 0

    async def ask(self, ask: Ask, load: Load) -> Answer:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        async with self._free:
            await asyncio.sleep(self._service_s)
        self.in_flight -= 1
        return Answer(status=200, tokens=1)

    async def close(self) -> None:
        return None


class BlockingCaller(SlowCaller):
    """Blocks the generator's own loop, as a generator that cannot keep up would be."""

    async def ask(self, ask: Ask, load: Load) -> Answer:
        time.sleep(self._service_s)  # noqa: ASYNC251  blocking is what it stands for
        return Answer(status=200, tokens=1)


def _load(requests: int, **fields: object) -> Load:
    load = Load(asks=make_asks(["a"], [(1,)], requests, 1), begin_s=time.monotonic())
    return replace(load, **fields)  # type: ignore[arg-type]  # names of a Load, in the tests below


async def test_a_closed_loop_never_has_more_requests_in_flight_than_clients() -> None:
    caller = SlowCaller(0.001, at_a_time=100)
    outcomes = await generate_load(caller, _load(30, clients=4))
    assert [outcome.index for outcome in outcomes] == list(range(30))
    assert caller.most_in_flight == 4
    assert all(outcome.due_s == outcome.sent_s for outcome in outcomes)


async def test_an_open_loop_sends_what_is_due_however_much_is_in_flight() -> None:
    caller = SlowCaller(0.05)
    due = tuple(i * 0.001 for i in range(10))
    await generate_load(caller, _load(10, due_s=due))
    assert caller.most_in_flight == 10


async def test_the_wait_behind_a_slow_server_counts_from_when_a_request_was_due() -> None:
    load = _load(10, due_s=(0.0,) * 10)
    outcomes = await generate_load(SlowCaller(0.02), load)
    waits = sorted(outcome.done_s - outcome.due_s for outcome in outcomes)
    assert waits[-1] >= 10 * 0.02  # the last one waited for all before it


async def test_a_generator_that_falls_behind_does_not_hide_it() -> None:
    """Coordinated omission: the time a request was sent late is part of its latency."""
    load = _load(5, due_s=(0.0,) * 5)
    outcomes = await generate_load(BlockingCaller(0.02), load)
    last = max(outcomes, key=lambda outcome: outcome.done_s)
    assert last.sent_s - last.due_s >= 3 * 0.02
    assert last.done_s - last.due_s >= 5 * 0.02


def test_requests_go_through_the_documents_over_and_over() -> None:
    asks = make_asks(["a", "b", "c"], [(1,), (2,), (3,)], requests=2, per_request=2)
    assert [ask.texts for ask in asks] == [("a", "b"), ("c", "a")]
    assert asks[1].prompts == ((3,), (1,))


@pytest.mark.parametrize("processes", [1, 2, 3, 9])
def test_processes_share_requests_arrivals_and_clients_without_loss(processes: int) -> None:
    due = tuple(i * 0.1 for i in range(8))
    load = Load(asks=make_asks(["a"], [(1,)], 8, 1), due_s=due, clients=5)
    parts = split_load(load, processes)
    assert len(parts) == min(processes, 5)
    assert sum(part.clients for part in parts) == 5
    assert min(part.clients for part in parts) >= 1
    pairs = [
        pair
        for part in parts
        for pair in zip((a.index for a in part.asks), part.due_s, strict=True)
    ]
    assert sorted(pairs) == list(enumerate(due))
