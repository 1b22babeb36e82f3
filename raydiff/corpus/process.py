"""One shard from its file to its commit. Knows asyncio, not Ray: the model is a Protocol."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pyarrow as pa

from raydiff.corpus.attempts import Attempts
from raydiff.corpus.commit import Totals, commit_shard
from raydiff.corpus.inputs import Columns
from raydiff.corpus.plan import Shard, Span
from raydiff.corpus.reading import CorruptRows, Rejected, SpanReader, decode_texts
from raydiff.corpus.rows import output_tables
from raydiff.corpus.storage import Folder
from raydiff.corpus.work import Ask, Call, ShardWork, WorkSettings
from raydiff.errors import ClusterError, DeadlineExceeded, Overloaded, RaydiffError
from raydiff.request import Completion, GenerationRequest
from raydiff.text import DocumentPrompts

_TELLING = 4
"""From this many documents on, a shard in which none got through is the service's fault."""


class Generator(Protocol):
    """What summarises: `raydiff.client.Client`, or a test's stand-in."""

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        """Completions in the order of the requests."""


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """What a worker tells the driver of a committed shard: one small record."""

    shard_id: str
    rows: int
    errors: int
    totals: Totals
    started_s: float
    """Unix time at which reading began."""
    finished_s: float
    """Unix time of the commit."""

    def to_json(self) -> str:
        """As a string, which crosses Ray Data without a schema of its own."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ShardReport:
        """The inverse of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "totals": Totals(**fields["totals"])})


class CallGate:
    """Bounds the calls in flight, first come, first served; a suspect call has it to itself.

    A shard queues all its calls at once, so the next shard's calls fill in as this one's run out
    and the replicas stay busy across the boundary.
    """

    def __init__(self, calls: int) -> None:
        self._permits = asyncio.Semaphore(calls)
        self._calls = calls
        self._alone = asyncio.Lock()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """One of the calls in flight."""
        async with self._permits:
            yield

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """The only call in flight."""
        async with self._alone, AsyncExitStack() as held:
            for _ in range(self._calls):
                await held.enter_async_context(self._permits)
            yield


class ShardProcessor:
    """Summarises and commits shards; several may run at once on one event loop."""

    def __init__(
        self,
        *,
        input_folder: Folder,
        output: Folder,
        columns: Columns,
        prompts: DocumentPrompts,
        generator: Generator,
        suspect_generator: Generator,
        settings: WorkSettings,
        calls_in_flight: int,
        call_timeout_s: float,
    ) -> None:
        """`suspect_generator` takes calls that may break a replica; it should not try again."""
        self._reader = SpanReader(input_folder, columns)
        self._output = output
        self._attempts = Attempts(output)
        self._columns = columns
        self._prompts = prompts
        self._generator = generator
        self._suspect_generator = suspect_generator
        self._settings = settings
        self._gate = CallGate(calls_in_flight)
        self._call_timeout_s = call_timeout_s

    async def process(self, shard: Shard) -> ShardReport:
        """Take a shard to its commit.

        Raises:
            ClusterError: the service is gone, or fails every document.
            InputError: the input is gone or has changed since the plan.
        """
        started_s = time.time()
        before = await asyncio.to_thread(self._attempts.begin, shard)
        work, carried = await asyncio.to_thread(self._begin, shard, before)
        while calls := work.next_calls():
            await self._send_all(work, calls)
        _require_service(work, shard)
        return await asyncio.to_thread(self._finish, shard, work, carried, started_s)

    def _begin(self, shard: Shard, attempts_before: int) -> tuple[ShardWork, pa.Table]:
        table, texts = self._read(shard, attempts_before)
        work = ShardWork(shard, texts, self._prompts, self._settings)
        return work, table.select(list(dict.fromkeys(self._columns.carried)))

    def _read(
        self, shard: Shard, attempts_before: int
    ) -> tuple[pa.Table, Sequence[str | Rejected]]:
        if attempts_before >= self._settings.max_attempts:
            message = f"The worker died {attempts_before} times while it had this shard in hand."
            spans = [self._reject(span, "WorkerDied", message) for span in shard.spans]
        else:
            spans = [self._read_span(span) for span in shard.spans]
        return pa.concat_tables([table for table, _ in spans]), [
            t for _, found in spans for t in found
        ]

    def _read_span(self, span: Span) -> tuple[pa.Table, Sequence[str | Rejected]]:
        try:
            table = self._reader.read(span)
            return table, decode_texts(table.column(self._columns.text))
        except CorruptRows as error:
            return self._reject(span, "CorruptRows", str(error))

    def _reject(
        self, span: Span, error_type: str, message: str
    ) -> tuple[pa.Table, Sequence[str | Rejected]]:
        rejected = Rejected(error_type=error_type, message=message)
        return self._placeholder(span), [rejected] * span.rows

    def _placeholder(self, span: Span) -> pa.Table:
        """Rows of nulls: the identity of a row that cannot be read is its file and index."""
        schema = self._reader.schema(span)
        return pa.table([pa.nulls(span.rows, f.type) for f in schema], schema=schema)

    async def _send_all(self, work: ShardWork, calls: Sequence[Call]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(self._send(work, call))
        except* RaydiffError as failures:
            raise failures.exceptions[0] from failures

    async def _send(self, work: ShardWork, call: Call) -> None:
        generator = self._suspect_generator if call.suspect else self._generator
        async with self._gate.alone() if call.suspect else self._gate.shared():
            asks = [ask for ask in call.asks if work.wanted(ask)]
            if not asks:
                return
            requests = [work.request(ask) for ask in asks]
            try:
                completions = await generator.generate(requests, timeout_s=self._call_timeout_s)
            except Exception as error:
                # Whatever a replica raises must cost these documents at most, not the run.
                for ask in asks:
                    _fail(work, ask, error)
                return
        for ask, completion in zip(asks, completions, strict=True):
            work.succeed(ask, completion)

    def _finish(
        self, shard: Shard, work: ShardWork, carried: pa.Table, started_s: float
    ) -> ShardReport:
        good, bad = output_tables(shard, self._columns, carried, work.summaries, work.failures)
        part = commit_shard(self._output, shard, good, bad, work.totals)
        self._attempts.end(shard)
        return ShardReport(
            shard_id=shard.shard_id,
            rows=part.rows,
            errors=part.errors,
            totals=work.totals,
            started_s=started_s,
            finished_s=time.time(),
        )


def _require_service(work: ShardWork, shard: Shard) -> None:
    """Do not commit a shard as failed when it is the service that failed."""
    sent = [f for f in work.failures.values() if f.attempts]
    if work.summaries or len(sent) < _TELLING:
        return
    if all(failure.by_service for failure in sent):
        last = sent[-1]
        raise ClusterError(
            f"all {len(sent)} documents of shard {shard.shard_id} failed after {last.attempts} "
            f"attempts, the last with {last.error_type}: {last.message} The shard is not "
            "committed; run the same command again once the service is well."
        )


def _fail(work: ShardWork, ask: Ask, error: Exception) -> None:
    # A full queue or a late answer says nothing about the documents.
    suspect = not isinstance(error, DeadlineExceeded | Overloaded)
    work.fail(ask, type(error).__name__, _one_line(error), by_service=True, suspect=suspect)


def _one_line(error: BaseException) -> str:
    text = str(error) if isinstance(error, RaydiffError) else f"{error!r}"
    lines = text.strip().splitlines()
    return lines[-1][:500] if lines else type(error).__name__
