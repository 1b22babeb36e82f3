"""When each shard in hand last got on: what a watchdog needs to tell slow from stuck."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Pulse:
    """Progress of a worker's shards. Safe to use from several threads.

    A shard gets on with each request that is answered and each step between reading and commit.
    While none of its calls is in flight it waits for its turn, and gets on as the worker does.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._shards: dict[str, float] = {}
        self._calls: dict[str, int] = {}
        self._worker_s = clock()

    @contextmanager
    def shard(self, shard_id: str) -> Iterator[None]:
        """While the shard is in hand."""
        with self._lock:
            self._shards[shard_id] = self._worker_s = self._clock()
            self._calls[shard_id] = 1
        try:
            yield
        finally:
            with self._lock:
                self._shards.pop(shard_id, None)
                self._calls.pop(shard_id, None)

    @contextmanager
    def waiting(self, shard_id: str) -> Iterator[None]:
        """While the shard's own code does nothing but wait for its calls."""
        self._count(shard_id, -1)
        try:
            yield
        finally:
            self._count(shard_id, 1)

    @contextmanager
    def call(self, shard_id: str) -> Iterator[None]:
        """While a call of the shard is in flight."""
        self._count(shard_id, 1)
        try:
            yield
        finally:
            self._count(shard_id, -1)

    def on(self, shard_id: str) -> None:
        """The shard got on."""
        with self._lock:
            self._worker_s = self._clock()
            if shard_id in self._shards:
                self._shards[shard_id] = self._worker_s

    def worker_on(self) -> None:
        """The worker got on: it waits for something that others need first."""
        with self._lock:
            self._worker_s = self._clock()

    def ages(self) -> dict[str, float]:
        """Seconds since each shard in hand last got on."""
        with self._lock:
            now_s = self._clock()
            return {
                shard_id: now_s - (last_s if self._calls[shard_id] > 0 else self._worker_s)
                for shard_id, last_s in self._shards.items()
            }

    def _count(self, shard_id: str, change: int) -> None:
        with self._lock:
            if shard_id in self._calls:
                self._calls[shard_id] += change
        self.on(shard_id)
