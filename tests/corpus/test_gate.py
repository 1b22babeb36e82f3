"""Who may call now: a bound, first come first served, and quiet for suspects."""

from __future__ import annotations

import asyncio

import pytest

from raydiff.corpus.gate import CallGate


class Traffic:
    """Calls through a gate, and what was in flight beside each."""

    def __init__(self, gate: CallGate) -> None:
        self.gate = gate
        self.running: list[str] = []
        self.beside: dict[str, list[str]] = {}
        self.most = 0

    async def shared(self, name: str) -> None:
        async with self.gate.shared():
            await self._run(name)

    async def alone(self, name: str) -> None:
        async with self.gate.alone():
            await self._run(name)

    async def _run(self, name: str) -> None:
        self.beside[name] = list(self.running)
        self.running.append(name)
        self.most = max(self.most, len(self.running))
        await asyncio.sleep(0.01)
        self.running.remove(name)


async def test_calls_in_flight_are_bounded_and_come_in_order() -> None:
    traffic = Traffic(CallGate(3))
    await asyncio.gather(*(traffic.shared(str(i)) for i in range(10)))
    assert traffic.most == 3
    assert list(traffic.beside) == [str(i) for i in range(10)]


async def test_a_suspect_runs_with_nothing_beside_it() -> None:
    traffic = Traffic(CallGate(3))
    await asyncio.gather(
        *(traffic.shared(str(i)) for i in range(5)),
        traffic.alone("one"),
        traffic.alone("two"),
        *(traffic.shared(str(i)) for i in range(5, 8)),
    )
    assert traffic.beside["one"] == traffic.beside["two"] == []
    assert not any("one" in b or "two" in b for b in traffic.beside.values())
    assert len(traffic.beside) == 10


async def test_a_suspect_does_not_wait_for_the_whole_queue() -> None:
    traffic = Traffic(CallGate(1))
    await asyncio.gather(*(traffic.shared(str(i)) for i in range(5)), traffic.alone("suspect"))
    assert list(traffic.beside)[1] == "suspect"


async def test_other_calls_go_on_while_the_lock_of_the_run_is_waited_for() -> None:
    free = asyncio.Event()

    class Lock:
        async def acquire(self, *, quiet: bool) -> bool:
            await free.wait()
            return quiet

        async def release(self) -> None: ...

    traffic = Traffic(CallGate(2, Lock()))
    suspect = asyncio.create_task(traffic.alone("suspect"))
    await asyncio.gather(*(traffic.shared(str(i)) for i in range(4)))
    assert "suspect" not in traffic.beside
    free.set()
    await suspect
    assert traffic.beside["suspect"] == []


async def test_a_call_that_gives_up_waiting_leaves_its_place_to_the_next() -> None:
    gate = CallGate(1)
    traffic = Traffic(gate)
    calls = [asyncio.create_task(traffic.shared(str(i))) for i in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert list(traffic.beside) == ["0", "2"]
    assert (gate.running, gate.waiting) == (0, 0)


async def test_a_wider_gate_lets_waiting_calls_in() -> None:
    traffic = Traffic(CallGate(1))
    calls = asyncio.gather(*(traffic.shared(str(i)) for i in range(6)))
    await asyncio.sleep(0)
    traffic.gate.resize(4)
    await calls
    assert traffic.most == 4


async def test_a_failure_inside_gives_the_place_back() -> None:
    gate = CallGate(1)
    for enter in (gate.shared, gate.alone):
        with pytest.raises(ValueError, match="x"):
            async with enter():
                raise ValueError("x")
    async with asyncio.timeout(1), gate.alone():
        pass
