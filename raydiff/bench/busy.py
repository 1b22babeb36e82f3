"""How busy replicas are while a job runs: readings of their exact sums, and what lies between.

The steady state runs from the first to the last reading at which the replicas had at least as
many requests as they denoise at a time. Before it the first shard is read, after it nothing is
left to send. Whatever happens between counts, also times without work. A forward counts where it
ends, so that a fraction is exact up to one forward at either end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from raydiff.client import Client
from raydiff.corpus.fleet import ANSWER_S, Answers, ReplicaWatch
from raydiff.engine.counts import Work

EVERY_S = 0.25


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


@contextmanager
def readings(client: Client, every_s: float = EVERY_S) -> Iterator[list[Reading]]:
    """Readings from the block's beginning to its end, and several a second in between.

    The first is there when the block begins and the last when it has ended, so that the
    difference of both is all the work of the block, however short it was.

    Raises:
        ClusterError: a replica does not answer at the beginning or at the end.
    """
    taken = [_reading(client)]

    def look(answers: Answers | None) -> None:
        if answers:
            taken.append(Reading.of(answers))

    with ReplicaWatch(client, look, every_s=every_s):
        yield taken
    taken.append(_reading(client))


def _reading(client: Client) -> Reading:
    return Reading.of(asyncio.run(client.describe(timeout_s=ANSWER_S)))
