"""One shard from its file to its commit. Knows asyncio, not Ray: the model is a Protocol."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

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
from raydiff.corpus.request_lines import RequestReader
from raydiff.corpus.request_work import RequestWork
from raydiff.corpus.rows import output_tables
from raydiff.corpus.sending import Generator, InHand, Sender, Work, require_service
from raydiff.corpus.work import ShardWork, WorkSettings
from raydiff.storage import Folder
from raydiff.text import DocumentPrompts

_log = logging.getLogger(__name__)

_MAX_PREPARING = 1_000
"""No bound: what must be prepared alone is what waits for others."""
_POLL_S = 0.5
"""Between questions after results that other shards work on."""


class ShardProcessor:
    """Summarises and commits shards; several may run at once on one event loop."""

    def __init__(
        self,
        *,
        input_folder: Folder,
        output: Folder,
        layout: InputLayout,
        prompts: DocumentPrompts | RequestReader,
        generator: Generator,
        settings: WorkSettings,
        gate: CallGate,
        call_timeout_s: float,
        pulse: Pulse | None = None,
        shared: SharedResults | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Where documents are requests, `prompts` reads them. `generator` raises ReplicaDied when
        the first replica dies under a call. Without `shared` results, every shard generates all
        its documents. A full disk is waited for for `patience_s`."""
        self._reader = SpanReader(input_folder, layout)
        self._output = output
        self._columns = layout.columns
        self._prompts = prompts
        self._settings = settings
        self._preparing = CallGate(_MAX_PREPARING)
        self._pulse = pulse or Pulse()
        self._sender = Sender(
            generator,
            gate,
            self._pulse,
            call_timeout_s=call_timeout_s,
            max_attempts=settings.max_attempts,
        )
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
            await self._begin(work, shard.shard_id)
        in_hand = InHand(shard_id=shard.shard_id, work=work, attempts=attempts)
        await self._answer(in_hand, queued)
        require_service(in_hand)
        return await asyncio.to_thread(self._finish, shard, attempts, work, carried, started_s)

    async def _answer(self, shard: InHand, queued: Callable[[], None]) -> None:
        """Send all that is to be sent, and wait for what other shards generate."""
        while True:
            while calls := shard.work.next_calls():
                with self._pulse.waiting(shard.shard_id):
                    await self._sender.send_all(shard, calls, queued)
            queued()
            await self._shared.settle(shard.shard_id, *shard.work.settlement())
            if not shard.work.waiting:
                return
            await asyncio.sleep(_POLL_S)
            self._pulse.on(shard.shard_id)
            async with self._preparing.shared():
                await self._begin(shard.work, shard.shard_id)

    async def _begin(self, work: Work, shard_id: str) -> None:
        """Begin what nobody else has; take what others have done."""
        if keys := work.claimable:
            answers = await self._shared.claim(shard_id, keys)
            work.take(dict(zip(keys, answers, strict=True)))
        await asyncio.to_thread(work.begin)

    def _prepare(self, shard: Shard, attempts: ShardAttempts, deaths: int) -> tuple[Work, pa.Table]:
        table, texts = self._read(shard, attempts, deaths)
        texts = without_condemned(texts, attempts, self._settings.max_attempts)
        if deaths >= CAREFUL_FROM:
            _log.warning(
                "Shard %s took its worker along %d times: its documents are prepared one by one.",
                shard.shard_id,
                deaths,
            )

            def probe(alone: Sequence[str | Rejected]) -> None:
                self._pulse.on(shard.shard_id)  # many documents may take longer than a stuck one
                self._work(shard, alone, table).begin()

            probe_each(texts, attempts, probe)
        work = self._work(shard, texts, table)
        self._pulse.on(shard.shard_id)
        return work, table

    def _work(self, shard: Shard, texts: Sequence[str | Rejected], table: pa.Table) -> Work:
        if isinstance(self._prompts, RequestReader):
            return RequestWork(shard, texts, self._prompts, self._settings)
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

    def _finish(
        self,
        shard: Shard,
        attempts: ShardAttempts,
        work: Work,
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
