"""Sends a shard's requests: many together, and alone whoever may have broken something."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from raydiff.corpus.answers import Failure, Summary
from raydiff.corpus.asks import Ask, Call
from raydiff.corpus.attempts import ShardAttempts
from raydiff.corpus.commit import Totals
from raydiff.corpus.dedupe import Answer
from raydiff.corpus.gate import CallGate
from raydiff.corpus.pulse import Pulse
from raydiff.errors import (
    ClusterError,
    DeadlineExceeded,
    Overloaded,
    RaydiffError,
    ReplicaDied,
)
from raydiff.request import Completion, GenerationRequest

_log = logging.getLogger(__name__)

_TELLING = 4
"""From this many documents on, a shard in which none got through is the service's fault."""
_UNHEARD = ("ClusterError", "Overloaded")
"""No replica took the document: whatever came of others, that is no fault of its own."""


class Generator(Protocol):
    """What answers: `raydiff.client.Client`, or a test's stand-in."""

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        """Completions in the order of the requests."""


class Work(Protocol):
    """The documents of a shard under way: `ShardWork`, or `RequestWork` where they are requests."""

    summaries: dict[int, Summary]
    failures: dict[int, Failure]

    @property
    def totals(self) -> Totals: ...

    @property
    def claimable(self) -> Sequence[bytes]: ...

    @property
    def waiting(self) -> bool: ...

    def take(self, answers: Mapping[bytes, Answer]) -> None: ...

    def settlement(self) -> tuple[dict[bytes, bytes], list[bytes]]: ...

    def begin(self) -> None: ...

    def next_calls(self) -> list[Call]: ...

    def wanted(self, ask: Ask) -> bool: ...

    def request(self, ask: Ask) -> GenerationRequest: ...

    def succeed(self, ask: Ask, completion: Completion) -> None: ...

    def fail(
        self,
        ask: Ask,
        error_type: str,
        message: str,
        *,
        by_service: bool = False,
        suspect: bool = False,
    ) -> None: ...

    def suspect(self, ask: Ask) -> None: ...

    def isolate(self, indices: Iterable[int]) -> None: ...

    def condemn(self, ask: Ask, error_type: str, message: str, attempts: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class InHand:
    """A shard under way."""

    shard_id: str
    work: Work
    attempts: ShardAttempts


class Sender:
    """Takes the calls of a worker's shards through the gate."""

    def __init__(
        self,
        generator: Generator,
        gate: CallGate,
        pulse: Pulse,
        *,
        call_timeout_s: float,
        max_attempts: int,
    ) -> None:
        """`generator` raises ReplicaDied when the first replica dies under a call."""
        self._generator = generator
        self._gate = gate
        self._pulse = pulse
        self._call_timeout_s = call_timeout_s
        self._max_attempts = max_attempts
        self._one_suspect = asyncio.Lock()

    async def send_all(
        self, shard: InHand, calls: Sequence[Call], queued: Callable[[], None]
    ) -> None:
        """Send calls and take what comes of them. `queued` is told once all wait at the gate.

        Raises:
            ClusterError: the service fails every document, or the run's coordinator is gone.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    alone = call.suspect
                    group.create_task(
                        self._send_alone(shard, call.asks[0]) if alone else self._send(shard, call)
                    )
                await asyncio.sleep(0)  # each has come to the gate
                queued()
        except* RaydiffError as failures:
            raise failures.exceptions[0] from failures

    async def _send(self, shard: InHand, call: Call) -> None:
        async with self._gate.shared():
            asks = [ask for ask in call.asks if shard.work.wanted(ask)]
            if not asks:
                return
            try:
                completions = await self._generate(shard, asks)
            except Exception as error:
                # Whatever a replica raises must cost these documents at most, not the run.
                for ask in asks:
                    if _may_be_one(error, asks):
                        shard.work.suspect(ask)
                    else:
                        _fail(shard.work, ask, error)
                return
        for ask, completion in zip(asks, completions, strict=True):
            shard.work.succeed(ask, completion)

    async def _send_alone(self, shard: InHand, ask: Ask) -> None:
        """Send a suspect until it is done with or has failed.

        The first time it only keeps away from other suspects, which costs the run nothing. Once
        a replica died under it, nothing else of the run may be in flight: then it is to blame.
        """
        async with self._one_suspect:
            while shard.work.wanted(ask) and await self._kills_a_replica(shard, ask):
                pass

    async def _kills_a_replica(self, shard: InHand, ask: Ask) -> bool:
        """Send a suspect once, alone; returns whether a replica died under it."""
        work, attempts = shard.work, shard.attempts
        quiet = attempts.deaths(ask.index) > 0 or self._max_attempts == 1
        async with self._gate.alone(quiet=quiet) as certain:
            death = await asyncio.to_thread(attempts.charge, ask.index)
            try:
                (completion,) = await self._generate(shard, [ask])
            except ReplicaDied as error:
                reason = _one_line(error)
            except Exception as error:
                await asyncio.to_thread(attempts.discharge, ask.index)
                _fail(work, ask, error)
                return False
            else:
                await asyncio.to_thread(attempts.discharge, ask.index)
                work.succeed(ask, completion)
                return False
        _log.warning(
            "A replica died with document %d of shard %s alone in hand (%d of %d).",
            *(ask.index, shard.shard_id, death, self._max_attempts),
        )
        if certain and death >= self._max_attempts:
            work.condemn(ask, "ReplicaDied", reason, attempts=death + ask.attempts)
            require_service(shard)
        return True

    async def _generate(self, shard: InHand, asks: Sequence[Ask]) -> list[Completion]:
        requests = [shard.work.request(ask) for ask in asks]
        with self._pulse.call(shard.shard_id):
            return await self._generator.generate(requests, timeout_s=self._call_timeout_s)


def require_service(shard: InHand) -> None:
    """Do not let a shard fail when it is the service that failed.

    Raises:
        ClusterError: it is.
    """
    work = shard.work
    # Documents with the same content share one failure, which says no more for being theirs.
    sent = list({id(f): f for f in work.failures.values() if f.attempts}.values())
    unheard = [failure for failure in sent if failure.error_type in _UNHEARD]
    telling = not work.summaries and len(sent) >= _TELLING
    if unheard or (telling and all(failure.by_service for failure in sent)):
        last = (unheard or sent)[-1]
        which = f"{len(unheard)} of the" if unheard else f"all {len(sent)}"
        raise ClusterError(
            f"{which} documents of shard {shard.shard_id} failed after {last.attempts} attempts, "
            f"the last with {last.error_type}: {last.message} The shard is not committed; run the "
            "same command again once the service is well."
        )


def _may_be_one(error: Exception, asks: Sequence[Ask]) -> bool:
    """Whether one of several documents may be why a call failed, and the others innocent."""
    if isinstance(error, ReplicaDied):
        return True
    # A full queue or a late answer says nothing about the documents.
    return len(asks) > 1 and not isinstance(error, DeadlineExceeded | Overloaded)


def _fail(work: Work, ask: Ask, error: Exception) -> None:
    work.fail(ask, type(error).__name__, _one_line(error), by_service=True, suspect=ask.suspect)


def _one_line(error: BaseException) -> str:
    text = str(error) if isinstance(error, RaydiffError) else f"{error!r}"
    lines = text.strip().splitlines()
    return lines[-1][:500] if lines else type(error).__name__
