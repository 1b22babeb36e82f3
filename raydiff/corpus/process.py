"""One shard from its file to its commit. Knows asyncio, not Ray: the model is a Protocol."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from raydiff.corpus.attempts import ShardAttempts
from raydiff.corpus.careful import (
    CAREFUL_FROM,
    condemned_span,
    hopeless,
    probe_each,
    without_condemned,
)
from raydiff.corpus.commit import ShardReport, commit_shard
from raydiff.corpus.dedupe import NothingShared, SharedResults
from raydiff.corpus.disk_full import PATIENCE_S, Room
from raydiff.corpus.fields import template_values
from raydiff.corpus.gate import CallGate
from raydiff.corpus.inputs import InputLayout
from raydiff.corpus.plan import Shard, Span
from raydiff.corpus.pulse import Pulse
from raydiff.corpus.reading import Rejected, SpanReader
from raydiff.corpus.rows import output_tables
from raydiff.corpus.storage import Folder
from raydiff.corpus.work import Ask, Call, ShardWork, WorkSettings
from raydiff.errors import (
    ClusterError,
    DeadlineExceeded,
    Overloaded,
    RaydiffError,
    ReplicaDied,
)
from raydiff.request import Completion, GenerationRequest
from raydiff.text import DocumentPrompts

_log = logging.getLogger(__name__)

_MAX_PREPARING = 1_000
"""No bound: what must be prepared alone is what waits for others."""
_POLL_S = 0.5
"""Between questions after results that other shards work on."""
_TELLING = 4
"""From this many documents on, a shard in which none got through is the service's fault."""


class Generator(Protocol):
    """What summarises: `raydiff.client.Client`, or a test's stand-in."""

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        """Completions in the order of the requests."""


class ShardProcessor:
    """Summarises and commits shards; several may run at once on one event loop."""

    def __init__(
        self,
        *,
        input_folder: Folder,
        output: Folder,
        layout: InputLayout,
        prompts: DocumentPrompts,
        generator: Generator,
        settings: WorkSettings,
        gate: CallGate,
        call_timeout_s: float,
        pulse: Pulse | None = None,
        shared: SharedResults | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`generator` raises ReplicaDied when the first replica dies under a call. Without
        `shared` results, every shard generates all its documents. A full disk is waited for
        for `patience_s`."""
        self._reader = SpanReader(input_folder, layout)
        self._output = output
        self._columns = layout.columns
        self._prompts = prompts
        self._generator = generator
        self._settings = settings
        self._gate = gate
        self._preparing = CallGate(_MAX_PREPARING)
        self._one_suspect = asyncio.Lock()
        self._call_timeout_s = call_timeout_s
        self._pulse = pulse or Pulse()
        self._shared = shared or NothingShared()
        self._patience_s = patience_s

    async def process(self, shard: Shard, queued: Callable[[], None] = lambda: None) -> ShardReport:
        """Take a shard to its commit. `queued` is told once its calls wait at the gate.

        Raises:
            ClusterError: the service is gone, or fails every document.
            InputError: the input is gone or has changed since the plan.
            StorageError: the output cannot be written.
        """
        with self._pulse.shard(shard.shard_id):
            return await self._process(shard, queued)

    async def _process(self, shard: Shard, queued: Callable[[], None]) -> ShardReport:
        started_s = time.time()
        attempts = ShardAttempts(self._output, shard, self._room(shard))
        deaths = await asyncio.to_thread(attempts.begin)
        careful = deaths >= CAREFUL_FROM
        async with self._preparing.alone() if careful else self._preparing.shared():
            work, carried = await asyncio.to_thread(self._prepare, shard, attempts, deaths)
            work.isolate(attempts.guilty)
            await self._begin(work, shard)
        while True:
            while calls := work.next_calls():
                with self._pulse.waiting(shard.shard_id):
                    await self._send_all(work, shard, attempts, calls, queued)
            queued()
            await self._shared.settle(shard.shard_id, *work.settlement())
            if not work.waiting:
                break
            await asyncio.sleep(_POLL_S)
            self._pulse.on(shard.shard_id)
            async with self._preparing.shared():
                await self._begin(work, shard)
        _require_service(work, shard)
        return await asyncio.to_thread(self._finish, shard, attempts, work, carried, started_s)

    async def _begin(self, work: ShardWork, shard: Shard) -> None:
        """Begin what nobody else has; take what others have done."""
        if keys := work.claimable:
            answers = await self._shared.claim(shard.shard_id, keys)
            work.take(dict(zip(keys, answers, strict=True)))
        await asyncio.to_thread(work.begin)

    def _prepare(
        self, shard: Shard, attempts: ShardAttempts, deaths: int
    ) -> tuple[ShardWork, pa.Table]:
        table, texts = self._read(shard, attempts, deaths)
        texts = without_condemned(texts, attempts, self._settings.max_attempts)
        if deaths >= CAREFUL_FROM:
            _log.warning(
                "Shard %s took its worker along %d times: its documents are prepared one by one.",
                shard.shard_id,
                deaths,
            )
            probe_each(texts, attempts, lambda alone: self._work(shard, alone, table).begin())
        work = self._work(shard, texts, table)
        self._pulse.on(shard.shard_id)
        return work, table

    def _work(self, shard: Shard, texts: Sequence[str | Rejected], table: pa.Table) -> ShardWork:
        values = template_values(table, self._prompts.style.fields)
        return ShardWork(shard, texts, self._prompts, self._settings, values)

    def _read(
        self, shard: Shard, attempts: ShardAttempts, deaths: int
    ) -> tuple[pa.Table, Sequence[str | Rejected]]:
        given_up = hopeless(attempts, deaths)
        tables, texts = [], list[str | Rejected]()
        for number, span in enumerate(shard.spans):
            rejected = given_up or condemned_span(attempts, number, self._settings.max_attempts)
            if rejected is not None:
                table, found = self._reject(span, rejected)
            elif deaths >= CAREFUL_FROM:
                with attempts.risk_span(number):
                    table, found = self._read_span(span)
            else:
                table, found = self._read_span(span)
            tables.append(table)
            texts.extend(found)
        return pa.concat_tables(tables), texts

    def _read_span(self, span: Span) -> tuple[pa.Table, Sequence[str | Rejected]]:
        found = self._reader.read(span)
        return found.carried, found.texts

    def _reject(self, span: Span, why: Rejected) -> tuple[pa.Table, Sequence[str | Rejected]]:
        return self._reader.placeholder(span), [why] * span.rows

    async def _send_all(
        self,
        work: ShardWork,
        shard: Shard,
        attempts: ShardAttempts,
        calls: Sequence[Call],
        queued: Callable[[], None],
    ) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    sending = (
                        self._send_alone(work, shard, attempts, call.asks[0])
                        if call.suspect
                        else self._send(work, shard, call)
                    )
                    group.create_task(sending)
                await asyncio.sleep(0)  # each has come to the gate
                queued()
        except* RaydiffError as failures:
            raise failures.exceptions[0] from failures

    async def _send(self, work: ShardWork, shard: Shard, call: Call) -> None:
        async with self._gate.shared():
            asks = [ask for ask in call.asks if work.wanted(ask)]
            if not asks:
                return
            try:
                completions = await self._generate(work, shard, asks)
            except Exception as error:
                # Whatever a replica raises must cost these documents at most, not the run.
                if _may_be_one(error, asks):
                    for ask in asks:
                        work.suspect(ask)
                else:
                    for ask in asks:
                        _fail(work, ask, error)
                return
        for ask, completion in zip(asks, completions, strict=True):
            work.succeed(ask, completion)

    async def _send_alone(
        self, work: ShardWork, shard: Shard, attempts: ShardAttempts, ask: Ask
    ) -> None:
        """Send a suspect until it is done with or has failed.

        The first time it only keeps away from other suspects, which costs the run nothing. Once
        a replica died under it, nothing else of the run may be in flight: then it is to blame.
        """
        async with self._one_suspect:
            while work.wanted(ask) and await self._kills_a_replica(work, shard, attempts, ask):
                pass

    async def _kills_a_replica(
        self, work: ShardWork, shard: Shard, attempts: ShardAttempts, ask: Ask
    ) -> bool:
        """Send a suspect once, alone; returns whether a replica died under it."""
        most = self._settings.max_attempts
        quiet = attempts.deaths(ask.index) > 0 or most == 1
        async with self._gate.alone(quiet=quiet) as certain:
            death = await asyncio.to_thread(attempts.charge, ask.index)
            try:
                (completion,) = await self._generate(work, shard, [ask])
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
            *(ask.index, shard.shard_id, death, most),
        )
        if certain and death >= most:
            work.condemn(ask, "ReplicaDied", reason, attempts=death + ask.attempts)
            _require_service(work, shard)
        return True

    async def _generate(
        self, work: ShardWork, shard: Shard, asks: Sequence[Ask]
    ) -> list[Completion]:
        requests = [work.request(ask) for ask in asks]
        with self._pulse.call(shard.shard_id):
            return await self._generator.generate(requests, timeout_s=self._call_timeout_s)

    def _finish(
        self,
        shard: Shard,
        attempts: ShardAttempts,
        work: ShardWork,
        carried: pa.Table,
        started_s: float,
    ) -> ShardReport:
        good, bad = output_tables(
            shard,
            self._columns,
            carried,
            work.summaries,
            work.failures,
            self._settings.answer_column,
        )
        report = self._room(shard).wait_for(
            lambda: commit_shard(self._output, shard, good, bad, work.totals, started_s=started_s)
        )
        attempts.end()
        return report

    def _room(self, shard: Shard) -> Room:
        return Room(patience_s=self._patience_s, on_wait=lambda: self._pulse.on(shard.shard_id))


def _require_service(work: ShardWork, shard: Shard) -> None:
    """Do not commit a shard as failed when it is the service that failed."""
    # Documents with the same content share one failure, which says no more for being theirs.
    sent = list({id(f): f for f in work.failures.values() if f.attempts}.values())
    if work.summaries or len(sent) < _TELLING:
        return
    if all(failure.by_service for failure in sent):
        last = sent[-1]
        raise ClusterError(
            f"all {len(sent)} documents of shard {shard.shard_id} failed after {last.attempts} "
            f"attempts, the last with {last.error_type}: {last.message} The shard is not "
            "committed; run the same command again once the service is well."
        )


def _may_be_one(error: Exception, asks: Sequence[Ask]) -> bool:
    """Whether one of several documents may be why a call failed, and the others innocent."""
    if isinstance(error, ReplicaDied):
        return True
    # A full queue or a late answer says nothing about the documents.
    return len(asks) > 1 and not isinstance(error, DeadlineExceeded | Overloaded)


def _fail(work: ShardWork, ask: Ask, error: Exception) -> None:
    work.fail(ask, type(error).__name__, _one_line(error), by_service=True, suspect=ask.suspect)


def _one_line(error: BaseException) -> str:
    text = str(error) if isinstance(error, RaydiffError) else f"{error!r}"
    lines = text.strip().splitlines()
    return lines[-1][:500] if lines else type(error).__name__
