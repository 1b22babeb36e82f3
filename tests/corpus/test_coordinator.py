"""What workers share: two suspects never run at once, dead workers hold nobody up, stuck ones are
named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raydiff.corpus import coordinator as module
from raydiff.corpus.coordinator import Beat, Coordinator, WorkerIdentity


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.05)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shared(clock: Clock) -> Coordinator:
    return Coordinator(lease_s=10.0, clock=clock)


async def beat(shared: Coordinator, name: str, actor: str | None = None, **shards: float) -> None:
    identity = WorkerIdentity(worker_id=name, actor_id=actor or name, pid=1, node_id="n")
    await shared.beat(Beat(identity=identity, shards=shards), f"handle of {name}")


async def test_two_suspects_never_run_at_once(shared: Coordinator) -> None:
    for name in "ab":
        await beat(shared, name)
    assert await shared.acquire("a", False) is False  # b may have calls in flight
    assert await shared.acquire("b", False) is None
    await shared.release("a")
    assert await shared.acquire("b", False) is not None


async def test_the_line_is_kept_while_it_is_asked_again(shared: Coordinator) -> None:
    for name in "abc":
        await beat(shared, name)
    await shared.acquire("a", False)
    assert [await shared.acquire(name, False) for name in "bcb"] == [None, None, None]
    await shared.release("a")
    assert await shared.acquire("c", False) is None
    assert await shared.acquire("b", False) is not None


async def test_a_lock_held_by_a_dead_worker_is_released(shared: Coordinator, clock: Clock) -> None:
    for name in "ab":
        await beat(shared, name)
    await shared.acquire("a", True)
    clock.now_s += 11
    await beat(shared, "b")
    assert await shared.acquire("b", False) is True  # and b is alone now


async def test_a_worker_that_was_started_again_gives_up_what_it_held(shared: Coordinator) -> None:
    await beat(shared, "a", actor="x")
    await beat(shared, "b")
    await shared.acquire("a", False)
    await beat(shared, "a-again", actor="x")
    assert await shared.acquire("b", False) is not None


async def test_quiet_waits_until_the_others_have_nothing_in_flight(shared: Coordinator) -> None:
    for name in "ab":
        await beat(shared, name)
    state, pause = await shared.pause_for("b", -1)
    assert not pause
    assert await shared.acquire("a", True) is None
    state, pause = await shared.pause_for("b", state)
    assert pause
    await shared.drained("b", state)
    assert await shared.acquire("a", True) is True
    assert await shared.pause_for("a", -1) == (state, False)
    await shared.release("a")
    assert (await shared.pause_for("b", state))[1] is False


async def test_quiet_wakes_who_waits_for_it(shared: Coordinator) -> None:
    for name in "ab":
        await beat(shared, name)

    async def follow() -> None:
        state, pause = -1, False
        while not pause:
            state, pause = await shared.pause_for("b", state)
        await shared.drained("b", state)

    granted, _ = await asyncio.gather(_insist(shared, "a"), follow())
    assert granted is True


async def _insist(shared: Coordinator, name: str) -> bool:
    while (granted := await shared.acquire(name, True)) is None:
        pass
    return granted


async def test_a_dead_worker_does_not_keep_others_from_quiet(
    shared: Coordinator, clock: Clock
) -> None:
    for name in "ab":
        await beat(shared, name)
    assert await shared.acquire("a", True) is None
    clock.now_s += 11
    await beat(shared, "a")
    assert await shared.acquire("a", True) is True


async def test_a_worker_that_never_had_a_shard_does_not_keep_others_from_quiet(
    shared: Coordinator,
) -> None:
    await beat(shared, "a")
    idle = WorkerIdentity(worker_id="b", actor_id="b", pid=1, node_id="n")
    await shared.beat(Beat(identity=idle, shards={}, pauses=False), "handle of b")
    assert await shared.acquire("a", True) is True


async def stuck(shared: Coordinator) -> list[tuple[str, Any, tuple[str, ...], float, bool]]:
    found = await shared.stuck(20.0, 60.0)
    return [(s.identity.worker_id, s.actor, s.shards, s.seconds, s.silent) for s in found]


async def test_workers_of_a_window_that_is_over_are_not_missed(
    shared: Coordinator, clock: Clock
) -> None:
    await beat(shared, "a", s=0.0)  # its last shard was done after that
    await shared.forget_workers()
    clock.now_s += 1000
    assert await stuck(shared) == []
    assert await shared.guidance("b") == (None, 1)


async def test_a_worker_that_fell_silent_is_named_once(shared: Coordinator, clock: Clock) -> None:
    await beat(shared, "a", s1=0.0, s2=3.0)
    clock.now_s += 19
    assert await stuck(shared) == []
    clock.now_s += 2
    assert await stuck(shared) == [("a", "handle of a", ("s1", "s2"), 21.0, True)]
    assert await stuck(shared) == []


async def test_a_shard_that_does_not_get_on_is_named(shared: Coordinator, clock: Clock) -> None:
    await beat(shared, "a", slow=59.0, stuck=61.0)
    assert await stuck(shared) == [("a", "handle of a", ("stuck",), 61.0, False)]


async def test_a_worker_without_shards_may_be_silent(shared: Coordinator, clock: Clock) -> None:
    await beat(shared, "a")
    clock.now_s += 1000
    assert await stuck(shared) == []


async def test_workers_learn_the_fleet_and_their_number(shared: Coordinator) -> None:
    assert await shared.guidance("a") == (None, 1)
    for name in "abc":
        await beat(shared, name)
    await shared.set_fleet("fleet")
    assert await shared.guidance("a") == ("fleet", 3)
