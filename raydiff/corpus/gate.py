"""Who may call the replicas now: a bound on calls in flight, and quiet for those that need it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol


class RunLock(Protocol):
    """What keeps suspects apart over all workers of a run."""

    async def acquire(self, *, quiet: bool) -> bool:
        """Wait for the lock. With `quiet`, the other workers' calls end first and none begins
        until `release`. Returns whether nothing else in the run is in flight."""

    async def release(self) -> None:
        """Give the lock back; without holding it, nothing happens."""


class NoOtherWorkers:
    """The lock of a run that has one worker."""

    async def acquire(self, *, quiet: bool) -> bool:
        """At once."""
        return True

    async def release(self) -> None:
        """Nothing to do."""


class CallGate:
    """Bounds the calls in flight, first come, first served; a suspect call has it to itself.

    A shard queues all its calls at once, so the next shard's calls fill in as this one's run out
    and the replicas stay busy across the boundary. Belongs to one event loop.
    """

    def __init__(self, calls: int, run: RunLock | None = None) -> None:
        self._limit = calls
        self._run = run or NoOtherWorkers()
        self._running = 0
        self._holds = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._alone = asyncio.Lock()

    @property
    def calls(self) -> int:
        """Most calls in flight."""
        return self._limit

    @property
    def running(self) -> int:
        """Calls in flight."""
        return self._running

    @property
    def waiting(self) -> int:
        """Calls that wait for others to end."""
        return len(self._waiting)

    def resize(self, calls: int) -> None:
        """Change the bound; calls in flight beyond a smaller one end as they do."""
        self._limit = max(1, calls)
        self._admit()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """One of the calls in flight."""
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def alone(self, *, quiet: bool = False) -> AsyncIterator[bool]:
        """The only call of this worker in flight, and the only suspect of the run.

        Yields whether it is the only call of the run, which `quiet` makes sure of.
        """
        async with self._alone:
            try:
                # Other calls go on while the run's lock is waited for.
                certain = await self._run.acquire(quiet=quiet)
                async with self.paused():
                    yield certain
            finally:
                await self._run.release()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No call in flight, and none begins."""
        self._holds += 1
        try:
            await self._idle.wait()
            yield
        finally:
            self._holds -= 1
            self._admit()

    async def _enter(self) -> None:
        if not self._waiting and self._free:
            self._count(1)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    self._waiting.remove(turn)
            else:
                self._leave()
            raise

    def _leave(self) -> None:
        self._count(-1)
        self._admit()

    @property
    def _free(self) -> bool:
        return not self._holds and self._running < self._limit

    def _admit(self) -> None:
        while self._waiting and self._free:
            turn = self._waiting.popleft()
            if not turn.cancelled():
                self._count(1)
                turn.set_result(None)

    def _count(self, change: int) -> None:
        self._running += change
        if self._running:
            self._idle.clear()
        else:
            self._idle.set()
