"""When a worker begins its next shard: before the ones in hand run out of calls, and not much
sooner, so that its memory holds few."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

AHEAD = 2
"""Shards in hand whatever waits: one whose calls are sent, one that is read meanwhile."""


class Queue(Protocol):
    """What is asked of `CallGate`."""

    @property
    def calls(self) -> int:
        """Most calls in flight."""

    @property
    def waiting(self) -> int:
        """Calls that wait for others to end."""


class Intake:
    """Lets shards in, first come, first served, one being read at a time."""

    def __init__(self, queue: Queue, fixed: int | None = None) -> None:
        """`fixed` shards in hand, whatever waits."""
        self._queue = queue
        self._fixed = fixed
        self._in_hand = 0
        self._reading = 0
        self._turns: deque[asyncio.Future[None]] = deque()

    @property
    def in_hand(self) -> int:
        """Shards let in and not done."""
        return self._in_hand

    @asynccontextmanager
    async def shard(self) -> AsyncIterator[Callable[[], None]]:
        """A shard in hand; it calls what it is given once its calls are queued."""
        await self._turn()
        reading = True

        def queued() -> None:
            nonlocal reading
            self._reading -= reading
            reading = False
            self.look()

        try:
            yield queued
        finally:
            self._in_hand -= 1
            queued()

    def look(self) -> None:
        """Let in what may come; to be called when calls have been sent."""
        while self._turns and self._has_room():
            turn = self._turns.popleft()
            if not turn.done():
                self._let_in()
                turn.set_result(None)

    def _has_room(self) -> bool:
        if self._fixed is not None:
            return self._in_hand < self._fixed
        if self._reading:
            return False
        return self._in_hand < AHEAD or self._queue.waiting < self._queue.calls

    def _let_in(self) -> None:
        self._in_hand += 1
        self._reading += 1

    async def _turn(self) -> None:
        if not self._turns and self._has_room():
            self._let_in()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._in_hand -= 1
                self._reading -= 1
                self.look()
            raise
