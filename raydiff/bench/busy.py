"""How busy replicas are while a job runs: readings of their exact sums, and what lies between.

The steady state runs from the first to the last reading at which the replicas had at least as
many requests as they denoise at a time. Before it the first shard is read, after it nothing is
left to send. Whatever happens between counts, also times without work. A forward counts where it
ends, so that a fraction is exact up to one forward at either end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from raydiff.client import Client
from raydiff.engine.counts import Work
from raydiff.errors import ClusterError

EVERY_S = 0.25
_ANSWER_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Reading:
    """All replicas at one moment."""

    now_s: float
    """Unix time."""
    replicas: int
    requests: int
    """Waiting or denoised."""
    rows: int
    """Requests that the replicas denoise at a time."""
    work: Work
    """Done since the replicas were started."""

    @classmethod
    def of(cls, described: Sequence[Mapping[str, Any]]) -> Reading:
        """The reading that `Client.describe` gave."""
        return cls(
            now_s=sum(d["now_s"] for d in described) / len(described),
            replicas=len(described),
            requests=sum(d["requests"] for d in described),
            rows=sum(d["max_rows"] for d in described),
            work=sum((Work(**d["work"]) for d in described), Work()),
        )


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What replicas did between two readings."""

    seconds: float
    busy_fraction: float
    """Share of the time in which a replica was in a forward."""
    work: Work

    @classmethod
    def between(cls, first: Reading, last: Reading) -> Stretch:
        """From one reading to a later one of the same replicas."""
        seconds = last.now_s - first.now_s
        work = last.work - first.work
        busy = work.busy_s / (seconds * last.replicas) if seconds > 0 else 0.0
        return cls(seconds=seconds, busy_fraction=busy, work=work)


def steady_stretch(readings: Sequence[Reading]) -> Stretch | None:
    """The steady state; `None` when there were never enough requests, or at one reading only."""
    full = [reading for reading in readings if reading.requests >= reading.rows]
    if len(full) < 2:
        return None
    return Stretch.between(full[0], full[-1])


class Readings:
    """While it is entered, reads what the replicas did several times a second."""

    def __init__(self, client: Client, every_s: float = EVERY_S) -> None:
        self.taken: list[Reading] = []
        self._client = client
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="raydiff-readings", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        asyncio.run(self._read_for_ever())

    async def _read_for_ever(self) -> None:
        while not self._ended.is_set():
            try:
                described = await self._client.describe(timeout_s=_ANSWER_S)
            except ClusterError:
                described = []
            if described:
                self.taken.append(Reading.of(described))
            await asyncio.sleep(self._every_s)
