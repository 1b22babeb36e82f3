"""How much work to keep in flight: pure arithmetic, no Ray, no clock.

Little's law: calls in flight are calls a second times seconds a call. What a worker measures are
both, so the calls that keep a batch waiting at the replicas follow from the calls it has now:

    wanted = now * (seconds in transit + seconds of work + seconds to wait) / seconds of a call

where the seconds to wait are those of one batch. Replicas that run dry let nothing wait, and the
number grows; a queue longer than a batch shrinks it. It starts from what the replicas say of
themselves, and follows their number at once when some are added or lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from raydiff.config import CorpusSettings, ModelSettings
from raydiff.request import Completion

BATCHES = 2
"""Batches in flight at each replica before anything is measured: one runs, one waits."""
REPLICAS_PER_WORKER = 4
"""A worker only tokenises, sends and writes: it feeds several replicas."""
QUEUE_SHARE = 0.5
"""Share of the replicas' queues that a job takes at most; other jobs and retries have the rest."""
MAX_CALLS = 1024
"""Of one worker, whose memory holds their documents."""
MAX_SHARDS = 32
"""Of one worker, at a time."""
_STEP = 2.0
"""A measurement changes the number of calls by this factor at most."""
_STILL = 0.15
"""Smaller changes than this share are noise."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The replicas that serve a model, as they last described themselves."""

    running: int
    most: int
    """Replicas that autoscaling may come to."""
    max_rows: int
    """Requests that a replica denoises at a time."""
    max_in_flight: int
    """Requests that a replica takes before it refuses more."""
    target_calls: float
    """Calls in flight for each replica above which autoscaling adds one."""

    @classmethod
    def of(cls, described: Sequence[Mapping[str, Any]]) -> Fleet | None:
        """The fleet of `Client.describe`'s answers; `None` when no replica says what it takes."""
        told = [d for d in described if "max_rows" in d]
        if not told:
            return None
        return cls(
            running=len(described),
            most=max(len(described), *(int(d["max_replicas"]) for d in told)),
            max_rows=min(int(d["max_rows"]) for d in told),
            max_in_flight=min(int(d["max_in_flight"]) for d in told),
            target_calls=max(float(d["target_calls"]) for d in told),
        )

    @classmethod
    def usual(cls, running: int) -> Fleet:
        """Replicas that do not say what they take are taken to have the usual settings."""
        model = ModelSettings()
        return cls(
            running=running,
            most=max(1, running),
            max_rows=model.engine.max_rows,
            max_in_flight=model.engine.max_in_flight,
            target_calls=model.target_ongoing_requests,
        )

    @property
    def autoscales(self) -> bool:
        """Whether more replicas may still come."""
        return self.running < self.most


def first_calls(fleet: Fleet, documents_per_call: int) -> int:
    """Calls in flight, over all workers, before anything is measured."""
    return ceil(fleet.running * BATCHES * fleet.max_rows / documents_per_call)


def least_calls(fleet: Fleet, documents_per_call: int) -> int:
    """Calls in flight that fill every replica, and that ask autoscaling for twice as many."""
    full = ceil(fleet.running * fleet.max_rows / documents_per_call)
    if not fleet.autoscales:
        return full
    asked = min(fleet.most, 2 * max(1, fleet.running))
    return max(full, int(asked * fleet.target_calls) + 1)


def most_calls(fleet: Fleet, documents_per_call: int) -> int:
    """Calls in flight that the replicas' bounded queues take."""
    taken = max(1, fleet.running) * fleet.max_in_flight * QUEUE_SHARE
    return max(1, int(taken / documents_per_call))


def shards_in_hand(calls: int, documents_per_call: int, rows_per_shard: float) -> int:
    """Shards of one worker at a time: those whose calls are in flight, as many again that are read
    meanwhile, one that is begun and one that is committed."""
    documents = 2 * calls * documents_per_call
    return min(MAX_SHARDS, ceil(documents / max(1.0, rows_per_shard)) + 2)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The workers of a run."""

    least: int
    """For the replicas there are."""
    most: int
    """For those there may be."""
    shards: int
    """Shards that are given to one worker at a time; it begins them as its calls run out."""


def size_pool(settings: CorpusSettings, fleet: Fleet, *, tasks: int, rows_per_shard: float) -> Pool:
    """The pool for a fleet; settings that name numbers have their way."""
    if settings.workers is not None:
        least = most = min(settings.workers, tasks)
    else:
        most = max(1, min(tasks, ceil(fleet.most / REPLICAS_PER_WORKER)))
        least = max(1, min(most, ceil(fleet.running / REPLICAS_PER_WORKER)))
    per_call = settings.documents_per_call
    calls = settings.calls_in_flight or ceil(first_calls(fleet, per_call) / least)
    shards = settings.shards_in_flight or shards_in_hand(calls, per_call, rows_per_shard)
    return Pool(least=least, most=most, shards=shards)


@dataclass(frozen=True, kw_only=True)
class CallTimes:
    """Where the seconds of one call went."""

    call_s: float
    """From sending it to its answer."""
    waited_s: float
    """Until the first of its documents was begun: the replica's queue."""
    held_s: float
    """That one of its documents took, in the mean, from its beginning to its end."""

    @classmethod
    def of(cls, completions: Sequence[Completion], call_s: float) -> CallTimes | None:
        """The times of an answered call; `None` if no document of it was begun."""
        begun = [c for c in completions if c.total_s > 0 and c.usage.forwards]
        if not begun:
            return None
        return cls(
            call_s=call_s,
            waited_s=min(call_s, *(c.queue_s for c in begun)),
            held_s=sum(c.total_s - c.queue_s for c in begun) / len(begun),
        )


class Sizer:
    """Calls that one worker keeps in flight. Adapts once per gate-full of answers."""

    def __init__(self, documents_per_call: int, fixed: int | None = None) -> None:
        """`fixed` calls, whatever is measured."""
        self._documents_per_call = documents_per_call
        self._fixed = fixed
        self._fleet: Fleet | None = None
        self._workers = 1
        self._calls = float(fixed or 1)
        self._measured: list[CallTimes] = []

    @property
    def calls(self) -> int:
        """Calls to keep in flight now."""
        return self._fixed or max(1, round(self._calls))

    def follow(self, fleet: Fleet, workers: int) -> None:
        """Take over what is known of the replicas, and how many workers share them."""
        before, workers = self._fleet, max(1, workers)
        if before is None or not before.running:
            self._calls = first_calls(fleet, self._documents_per_call) / workers
        elif (before.running, self._workers) != (fleet.running, workers):
            self._calls *= fleet.running / before.running * self._workers / workers
            self._measured.clear()  # measured of another fleet
        self._fleet, self._workers = fleet, workers
        self._calls = self._bounded(self._calls)

    def observe(self, times: CallTimes) -> None:
        """Take the times of a call that was answered while as many as allowed were in flight."""
        self._measured.append(times)
        if len(self._measured) < self.calls or self._fleet is None:
            return
        wanted = self._bounded(self._calls * _growth(self._measured))
        self._measured.clear()
        if abs(wanted - self._calls) > _STILL * self._calls:
            self._calls = wanted

    def _bounded(self, calls: float) -> float:
        assert self._fleet is not None
        least = least_calls(self._fleet, self._documents_per_call) / self._workers
        most = most_calls(self._fleet, self._documents_per_call) / self._workers
        return max(1.0, min(max(calls, least), most, MAX_CALLS))


def _growth(measured: Sequence[CallTimes]) -> float:
    call_s = sum(times.call_s for times in measured)
    waited_s = sum(times.waited_s for times in measured)
    held_s = sum(times.held_s for times in measured)
    if call_s <= 0:
        return 1.0
    return min(_STEP, max(1 / _STEP, (call_s - waited_s + held_s) / call_s))
