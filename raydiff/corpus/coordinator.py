"""What the workers of a run share while it is under way: one actor, which needs no CPU.

It keeps nothing that a run depends on. When it starts afresh, workers make themselves known
again with their next beat, and whoever held the lock asks for it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raydiff.corpus.dedupe import Answer, ResultIndex

LEASE_S = 15.0
"""A worker that was not heard of for this long holds nobody up."""
POLL_S = 5.0
"""Longest that a question waits for news before it is answered with what is known."""


@dataclass(frozen=True, kw_only=True)
class WorkerIdentity:
    """One life of a worker, as the log names it."""

    worker_id: str
    """Unique to this process."""
    actor_id: str
    """Stays the same when Ray starts the worker again."""
    pid: int
    node_id: str

    def __str__(self) -> str:
        return f"worker with actor id {self.actor_id}, pid {self.pid} on node {self.node_id}"


@dataclass(frozen=True, kw_only=True)
class Beat:
    """What a worker says every second or two."""

    identity: WorkerIdentity
    shards: Mapping[str, float]
    """Shards in hand, with the seconds since each last got on."""
    pauses: bool = True
    """Whether it follows pauses yet. Before its first shard it does not, and calls nobody."""


@dataclass(frozen=True, kw_only=True)
class Stuck:
    """A worker that does not get on."""

    identity: WorkerIdentity
    actor: Any
    """Handle of the worker's actor."""
    shards: tuple[str, ...]
    seconds: float
    silent: bool
    """Whether the worker is not heard of at all."""


@dataclass
class _Worker:
    beat: Beat
    actor: Any
    heard_s: float
    drained: int = 0
    """The last pause it reported that none of its calls is in flight for."""


@dataclass
class _Lock:
    holder: str | None = None
    quiet: bool = False
    queue: list[str] = field(default_factory=list)
    pause: int = 0
    """Counts the times that quiet began or ended."""


class Coordinator:
    """Keeps suspects apart, knows which workers live and which of them are stuck."""

    def __init__(
        self, lease_s: float = LEASE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease_s = lease_s
        self._clock = clock
        self._workers: dict[str, _Worker] = {}
        self._lock = _Lock()
        self._changed = asyncio.Condition()
        self._fleet: Any = None
        self._results = ResultIndex(clock=clock)

    async def beat(self, beat: Beat, actor: Any) -> None:
        """Note that a worker lives."""
        identity = beat.identity
        known = self._workers.get(identity.worker_id)
        if known is None:
            self._forget_earlier_lives(identity)
            known = self._workers[identity.worker_id] = _Worker(beat, actor, 0.0)
        known.beat = beat
        known.heard_s = self._clock()
        for shard_id in beat.shards:
            self._results.renew(shard_id)

    async def forget_workers(self) -> None:
        """All shards that were given out are done: who had them goes away, and is not missed."""
        self._workers.clear()

    async def set_fleet(self, fleet: Any) -> None:
        """Keep what the driver knows of the replicas, for the workers."""
        self._fleet = fleet

    async def guidance(self, worker_id: str) -> tuple[Any, int]:
        """The fleet, `None` if the driver did not tell yet, and the number of workers alive."""
        return self._fleet, max(1, len(self._living()))

    async def acquire(self, worker_id: str, quiet: bool) -> bool | None:
        """Take the lock, or stand in line for it.

        Returns:
            Whether nothing else of the run is in flight; `None` if the lock is not free yet:
            ask again, the place in the line is kept.
        """
        lock = self._lock
        if worker_id not in lock.queue and lock.holder != worker_id:
            lock.queue.append(worker_id)
        if not await self._until(lambda: self._may_hold(worker_id)):
            return None
        if lock.holder != worker_id:
            lock.queue.remove(worker_id)
            lock.holder = worker_id
        if quiet and not lock.quiet:
            lock.quiet = True
            lock.pause += 1
            await self._tell()
        if quiet and not await self._until(lambda: not self._others_in_flight(worker_id)):
            return None
        return quiet or not (self._living() - {worker_id})

    async def release(self, worker_id: str) -> None:
        """Give the lock back, or leave the line."""
        lock = self._lock
        if worker_id in lock.queue:
            lock.queue.remove(worker_id)
        if lock.holder == worker_id:
            self._let_go()
        await self._tell()

    async def pause_for(self, worker_id: str, known: int) -> tuple[int, bool]:
        """Wait for a pause to begin or end.

        Returns:
            The number of the state, to be given as `known` next time, and whether the worker's
            calls must pause in it. Comes back after a while without news, too.
        """
        await self._until(lambda: self._lock.pause != known)
        lock = self._lock
        return lock.pause, lock.quiet and lock.holder != worker_id

    async def drained(self, worker_id: str, pause: int) -> None:
        """Note that none of the worker's calls is in flight since the pause began."""
        if worker := self._workers.get(worker_id):
            worker.drained = pause
            await self._tell()

    async def claim(self, owner: str, keys: Sequence[bytes]) -> list[Answer]:
        """As `ResultIndex.claim`."""
        return self._results.claim(owner, keys)

    async def settle(
        self, owner: str, results: Mapping[bytes, bytes], failed: Sequence[bytes]
    ) -> None:
        """As `ResultIndex.settle`."""
        self._results.settle(owner, results, failed)

    async def stuck(self, silent_s: float, still_s: float) -> list[Stuck]:
        """Workers not heard of for `silent_s`, or with a shard that did not get on for `still_s`.

        Each is named once.
        """
        now_s = self._clock()
        found = [s for w in self._workers.values() if (s := _stuck(w, now_s, silent_s, still_s))]
        for stuck in found:
            del self._workers[stuck.identity.worker_id]
        return found

    def _forget_earlier_lives(self, identity: WorkerIdentity) -> None:
        for worker_id, worker in list(self._workers.items()):
            if worker.beat.identity.actor_id == identity.actor_id:
                del self._workers[worker_id]

    def _living(self) -> set[str]:
        oldest_s = self._clock() - self._lease_s
        return {name for name, worker in self._workers.items() if worker.heard_s >= oldest_s}

    def _may_hold(self, worker_id: str) -> bool:
        lock = self._lock
        living = self._living() | {worker_id}
        if lock.holder is not None and lock.holder not in living:
            self._let_go()
        lock.queue = [name for name in lock.queue if name in living]
        return lock.holder == worker_id or (lock.holder is None and lock.queue[:1] == [worker_id])

    def _let_go(self) -> None:
        self._lock.holder = None
        if self._lock.quiet:
            self._lock.quiet = False
            self._lock.pause += 1

    def _others_in_flight(self, worker_id: str) -> bool:
        others = (self._workers[name] for name in self._living() - {worker_id})
        # Who has not had a shard cannot say that it has nothing in flight, and may never have one.
        return any(w.drained != self._lock.pause for w in others if w.beat.pauses)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition; leases run out without anybody telling, so look now and then."""
        deadline_s = time.monotonic() + POLL_S
        async with self._changed:
            while not condition():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                try:
                    async with asyncio.timeout(min(left_s, 1.0)):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        return True


def _stuck(worker: _Worker, now_s: float, silent_s: float, still_s: float) -> Stuck | None:
    shards = worker.beat.shards
    silence_s = now_s - worker.heard_s
    still = {shard: age + silence_s for shard, age in shards.items() if age + silence_s > still_s}
    silent = silence_s > silent_s
    if not shards or not (silent or still):
        return None
    return Stuck(
        identity=worker.beat.identity,
        actor=worker.actor,
        shards=tuple(sorted(shards if silent else still)),
        seconds=silence_s if silent else max(still.values()),
        silent=silent,
    )
