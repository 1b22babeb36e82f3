"""When a worker begins its next shard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from raydiff.corpus.intake import Intake


@dataclass
class Waiting:
    """A queue of calls that a test fills."""

    calls: int = 4
    waiting: int = 0


class Worker:
    """Shards that stay in hand until a test ends them."""

    def __init__(self, intake: Intake, shards: int) -> None:
        self._intake = intake
        self.queued: dict[int, Callable[[], None]] = {}
        self._done = [asyncio.Event() for _ in range(shards)]
        self.tasks = [asyncio.create_task(self._work(i)) for i in range(shards)]

    async def _work(self, index: int) -> None:
        async with self._intake.shard() as queued:
            self.queued[index] = queued
            await self._done[index].wait()

    async def begun(self) -> list[int]:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return sorted(self.queued)

    def end(self, index: int) -> None:
        self._done[index].set()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_one_shard_is_read_at_a_time() -> None:
    worker = Worker(Intake(Waiting()), 3)
    assert await worker.begun() == [0]
    worker.queued[0]()
    assert await worker.begun() == [0, 1]
    await worker.stop()


async def test_the_next_is_read_while_one_generates_however_many_calls_wait() -> None:
    worker = Worker(Intake(Waiting(calls=4, waiting=100)), 3)
    assert await worker.begun() == [0]
    worker.queued[0]()
    assert await worker.begun() == [0, 1]
    worker.queued[1]()
    assert await worker.begun() == [0, 1]
    await worker.stop()


async def test_shards_of_few_calls_are_let_in_until_enough_calls_wait() -> None:
    queue = Waiting(calls=4)
    worker = Worker(Intake(queue), 8)
    for _ in range(6):
        newest = max(await worker.begun())
        queue.waiting += 1
        worker.queued[newest]()
    assert await worker.begun() == [0, 1, 2, 3]
    await worker.stop()


async def test_calls_that_run_out_let_the_next_shard_in() -> None:
    queue = Waiting(calls=4, waiting=9)
    intake = Intake(queue)
    worker = Worker(intake, 3)
    for index in (0, 1):
        await worker.begun()
        worker.queued[index]()
    assert await worker.begun() == [0, 1]
    queue.waiting = 3
    intake.look()
    assert await worker.begun() == [0, 1, 2]
    await worker.stop()


async def test_a_shard_that_is_done_makes_room() -> None:
    queue = Waiting(calls=4, waiting=9)
    worker = Worker(Intake(queue), 3)
    for index in (0, 1):
        await worker.begun()
        worker.queued[index]()
    worker.end(0)
    assert await worker.begun() == [0, 1, 2]
    await worker.stop()


async def test_a_shard_that_fails_while_it_is_read_makes_room_too() -> None:
    intake = Intake(Waiting(waiting=9))
    worker = Worker(intake, 2)
    assert await worker.begun() == [0]
    worker.tasks[0].cancel()
    assert await worker.begun() == [0, 1]
    assert intake.in_hand == 1
    await worker.stop()
    assert intake.in_hand == 0


async def test_a_shard_that_gives_up_waiting_takes_no_place() -> None:
    intake = Intake(Waiting())
    worker = Worker(intake, 3)
    await worker.begun()
    worker.tasks[1].cancel()
    await asyncio.sleep(0)
    worker.queued[0]()
    assert await worker.begun() == [0, 2]
    await worker.stop()
    assert intake.in_hand == 0


async def test_a_fixed_number_is_in_hand_from_the_beginning() -> None:
    worker = Worker(Intake(Waiting(waiting=99), fixed=3), 5)
    assert await worker.begun() == [0, 1, 2]
    worker.end(1)
    assert await worker.begun() == [0, 1, 2, 3]
    await worker.stop()
