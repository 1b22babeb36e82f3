"""Limits per minute hold over all gateways, however their requests and messages interleave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.openai.problems import HttpRefusal
from raydiff.serve.access import Caller, Limits
from raydiff.serve.access.rates import Authority, Limiter
from raydiff.serve.access.rates.authority import SETTLE_S
from raydiff.serve.access.rates.limiter import Ticket
from raydiff.serve.access.rates.messages import Reply, Report

GATEWAYS = 3
Used = tuple[float, int]


class Fleet:
    """Three gateways' limiters and one authority, on one clock that goes when told."""

    def __init__(self, *, settled: bool = True) -> None:
        self.now_s = 1000.0
        self.authority = self.new_authority()
        self.up = True
        self.calls = 0
        self.hops = 0
        if settled:
            self.now_s += SETTLE_S
        self.limiters = [
            Limiter(self, gateways=GATEWAYS, clock=lambda: self.now_s) for _ in range(GATEWAYS)
        ]

    def new_authority(self) -> Authority:
        return Authority(clock=lambda: self.now_s)

    async def exchange(self, report: Report) -> Reply:
        self.calls += 1
        for _ in range(self.hops):
            await asyncio.sleep(0)
        if not self.up:
            raise ConnectionError("no answer")
        reply = self.authority.exchange(report)
        for _ in range(self.hops):
            await asyncio.sleep(0)
        return reply

    async def report(self) -> None:
        for limiter in self.limiters:
            await limiter.report()


async def admitted(limiter: Limiter, caller: Caller, tokens: int = 1) -> Ticket | None:
    try:
        return await limiter.admit(caller, tokens)
    except HttpRefusal:
        return None


def most_in_a_minute(used: Sequence[Used]) -> int:
    """The largest sum that any minute shows."""
    return max((sum(n for s, n in used if t <= s <= t + 60) for t, _ in used), default=0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, GATEWAYS - 1), st.integers(1, 40)),
        st.tuples(st.just("end"), st.integers(0, 20), st.integers(0, 100)),
        st.tuples(st.just("wait"), st.sampled_from([0, 1, 7, 10, 25, 300]), st.booleans()),
        st.tuples(st.just("hops"), st.integers(0, 3), st.none()),
    ),
    max_size=120,
)


@settings(max_examples=150)
@given(steps=STEPS, limit=st.sampled_from([1, 3, 10, 60, 200]))
def test_no_minute_shows_more_than_the_limit(steps: list[tuple[str, int, int]], limit: int) -> None:
    """Requests and tokens; leases, refunds and reports in any order, several on their way."""

    async def play() -> tuple[list[Used], list[Used]]:
        fleet, caller = (
            Fleet(),
            Caller(
                key_id="k", limits=Limits(requests_per_minute=limit, tokens_per_minute=4 * limit)
            ),
        )
        requests: list[Used] = []
        tokens: list[list[float]] = []
        running: list[tuple[Ticket, list[float]]] = []
        tasks: list[asyncio.Task[None]] = []

        async def ask(gateway: int, amount: int) -> None:
            ticket = await admitted(fleet.limiters[gateway], caller, min(amount, 4 * limit))
            if ticket is not None:
                requests.append((fleet.now_s, 1))
                tokens.append([fleet.now_s, min(amount, 4 * limit)])
                running.append((ticket, tokens[-1]))

        for kind, first, second in steps:
            if kind == "ask":
                tasks.append(asyncio.create_task(ask(first, second)))
                await asyncio.sleep(0)
            elif kind == "hops":
                fleet.hops = first
            elif kind == "end" and running:
                ticket, charge = running.pop(first % len(running))
                charge[1] = int(charge[1] * second / 100)
                ticket.settle(int(charge[1]))
            elif kind == "wait":
                fleet.now_s += first / 10
                if second:
                    tasks.append(asyncio.create_task(fleet.report()))
        await asyncio.gather(*tasks)
        return requests, [(s, int(n)) for s, n in tokens]

    requests, tokens = asyncio.run(play())
    assert most_in_a_minute(requests) <= limit
    assert most_in_a_minute(tokens) <= 4 * limit


async def served_under_load(
    fleet: Fleet, caller: Caller, seconds: int, weights: Sequence[int], per_second: int
) -> list[Used]:
    """Callers ask for more than they get, at gateways chosen by weight."""
    chooser = random.Random(5)
    used: list[Used] = []
    for _ in range(seconds):
        for limiter in chooser.choices(fleet.limiters, weights, k=per_second):
            ticket = await admitted(limiter, caller, 10)
            if ticket is not None:
                used.append((fleet.now_s, 1))
                ticket.settle(10)
            fleet.now_s += 1 / per_second
        await fleet.report()
    return used


@pytest.mark.parametrize("weights", [(1, 1, 1), (100, 1, 1), (1, 0, 0)])
@pytest.mark.parametrize("limit", [10, 500])
async def test_a_key_gets_its_limit_within_a_tenth_wherever_it_calls(
    weights: tuple[int, ...], limit: int
) -> None:
    caller = Caller(key_id="k", limits=Limits(requests_per_minute=limit))
    minutes = 3
    used = await served_under_load(Fleet(), caller, 60 * minutes, weights, 20)
    assert most_in_a_minute(used) <= limit
    assert 0.9 * limit * minutes <= len(used) <= 1.1 * limit * minutes


async def test_most_requests_are_admitted_or_refused_without_a_call() -> None:
    fleet = Fleet()
    caller = Caller(key_id="k", limits=Limits(requests_per_minute=12_000))
    used = await served_under_load(fleet, caller, 30, (1, 1, 1), 200)
    assert len(used) == 6000
    assert fleet.calls < 0.1 * 6000


async def test_a_restarted_authority_learns_what_was_used() -> None:
    fleet = Fleet()
    caller = Caller(key_id="k", limits=Limits(requests_per_minute=60))
    used = await served_under_load(fleet, caller, 10, (1, 1, 1), 3)
    fleet.authority = fleet.new_authority()
    used += await served_under_load(fleet, caller, 200, (1, 1, 1), 20)
    assert len(used) > 3 * 60
    assert most_in_a_minute(used) <= 60


async def test_while_the_authority_is_away_gateways_split_the_limit() -> None:
    """Not refused, and not without limit; and without a call per request."""
    fleet = Fleet()
    caller = Caller(key_id="k", limits=Limits(requests_per_minute=60))
    used = await served_under_load(fleet, caller, 10, (1, 1, 1), 3)
    fleet.up, calls = False, fleet.calls
    used += await served_under_load(fleet, caller, 240, (1, 1, 1), 20)
    assert most_in_a_minute(used) <= 60
    assert len([s for s, _ in used if s > 1010 + 60]) > 2 * 60
    assert fleet.calls - calls <= 4 * 240 * GATEWAYS
    fleet.up = True
    used += await served_under_load(fleet, caller, 100, (1, 1, 1), 20)
    assert most_in_a_minute(used) <= 60


async def test_tokens_are_charged_by_estimate_and_settled_by_use() -> None:
    fleet = Fleet()
    caller = Caller(key_id="k", limits=Limits(tokens_per_minute=100))
    first, second, third = fleet.limiters
    ticket = await admitted(first, caller, 90)
    assert ticket is not None
    assert await admitted(second, caller, 20) is None
    ticket.settle(30)
    ticket.settle(0)
    fleet.now_s += 1
    await fleet.report()
    assert await admitted(third, caller, 70) is not None
    fleet.now_s += 1
    assert await admitted(second, caller, 1) is None


async def test_requests_in_flight_are_counted_over_gateways() -> None:
    fleet = Fleet()
    caller = Caller(key_id="k", limits=Limits(concurrent_requests=2))
    tickets = [await admitted(limiter, caller) for limiter in fleet.limiters]
    assert [ticket is None for ticket in tickets] == [False, False, True]
    assert tickets[0] is not None
    tickets[0].settle(0)
    fleet.now_s += 1
    await fleet.report()
    assert await admitted(fleet.limiters[2], caller) is not None
    assert await admitted(fleet.limiters[0], caller) is None


async def test_the_seats_of_a_gateway_that_is_gone_are_free_again() -> None:
    fleet = Fleet()
    caller = Caller(key_id="k", limits=Limits(concurrent_requests=1))
    lost, second, _ = fleet.limiters
    assert await admitted(lost, caller) is not None
    fleet.now_s += 5
    assert await admitted(second, caller) is None
    fleet.now_s += 6
    assert await admitted(second, caller) is None  # the call that makes it known
    fleet.now_s += 1
    assert await admitted(second, caller) is not None


async def test_a_refusal_says_when_to_come_back_and_then_admits() -> None:
    fleet = Fleet()
    caller = Caller(key_id="k", limits=Limits(requests_per_minute=2, tokens_per_minute=100))
    limiter = fleet.limiters[0]
    first = await limiter.admit(caller, 10)
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert first.headers["x-ratelimit-remaining-tokens"] == "90"
    fleet.now_s += 20
    await limiter.admit(caller, 10)
    with pytest.raises(HttpRefusal) as caught:
        await limiter.admit(caller, 10)
    problem = caught.value.problem
    assert (problem.status, problem.code, problem.type) == (429, "rate_limit_exceeded", "requests")
    assert problem.headers()["x-ratelimit-remaining-requests"] == "0"
    wait_s = int(problem.headers()["Retry-After"])
    assert 39 <= wait_s <= 42
    fleet.now_s += wait_s - 3
    assert await admitted(limiter, caller, 10) is None
    fleet.now_s += 3
    assert await admitted(limiter, caller, 10) is not None


async def test_what_exceeds_a_minutes_tokens_alone_is_400_and_not_429() -> None:
    caller = Caller(key_id="k", limits=Limits(tokens_per_minute=100))
    with pytest.raises(HttpRefusal) as caught:
        await Fleet().limiters[0].admit(caller, 101)
    assert caught.value.problem.status == 400


async def test_a_key_files_new_limit_holds_at_once() -> None:
    fleet = Fleet()
    for limit, expected in ((1, False), (2, False), (2, True)):
        caller = Caller(key_id="k", limits=Limits(requests_per_minute=limit))
        refused = await admitted(fleet.limiters[0], caller) is None
        assert refused is expected
        fleet.now_s += 0.6


async def test_keys_do_not_share_a_limit() -> None:
    fleet = Fleet()
    for key_id in ("a", "b", "c"):
        caller = Caller(key_id=key_id, limits=Limits(requests_per_minute=1))
        assert await admitted(fleet.limiters[0], caller) is not None
        assert await admitted(fleet.limiters[1], caller) is None
