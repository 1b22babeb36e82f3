"""Streaming: several rows merged into one stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, cast

from starlette.datastructures import State
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from raydiff.errors import DeadlineExceeded, EngineError
from raydiff.openai.answers import Answer
from raydiff.openai.chunks import ChunkWriter
from raydiff.openai.problems import problem_of
from raydiff.request import Event
from raydiff.serve.access import Admission

Row = tuple[int, Event]
"""The number of a row, and something that happened to it."""

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_DONE = b"data: [DONE]\n\n"
READ_GRACE_S = 5.0
"""A reader that has not taken a stream so long after the request's deadline is given up: it holds
a connection and its caller's limits, though no longer a slot."""


async def merged(streams: Sequence[AsyncIterator[Event]]) -> AsyncIterator[Row]:
    """Yield the events of all streams as they come; closing it closes them. What the reader has
    not taken yet of a row is one event, however slow it reads.

    Raises:
        EngineError: a row failed; whatever else a stream raises comes through.
    """
    pending = _Pending()
    tasks = [asyncio.create_task(_pump(i, stream, pending)) for i, stream in enumerate(streams)]
    try:
        left = len(tasks)
        while left:
            index, event = await pending.next()
            if event.completion is not None:
                left -= 1
                if event.completion.finish_reason == "error":
                    raise EngineError(event.completion.error or "The engine failed.")
            yield index, event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Pending:
    """What was not read yet: an event per row."""

    def __init__(self) -> None:
        self._events: dict[int, Event] = {}
        self._error: Exception | None = None
        self._ready = asyncio.Event()

    def add(self, index: int, event: Event) -> None:
        earlier = self._events.get(index)
        self._events[index] = event if earlier is None else earlier.then(event)
        self._ready.set()

    def fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._ready.set()

    async def next(self) -> Row:
        """The row that has waited longest.

        Raises:
            Exception: a stream failed, and what came before is read.
        """
        await self._ready.wait()
        if not self._events:
            assert self._error is not None
            raise self._error
        index = next(iter(self._events))
        event = self._events.pop(index)
        if not self._events and self._error is None:
            self._ready.clear()
        return index, event


async def _pump(index: int, stream: AsyncIterator[Event], pending: _Pending) -> None:
    generator = cast("Any", stream)  # all streams are generators, whose type has no short name
    async with aclosing(generator):
        try:
            async for event in stream:
                pending.add(index, event)
        except Exception as error:
            pending.fail(error)


class EventStream(StreamingResponse):
    """Server-sent events of rows; whatever way it ends, the rows still running are cancelled."""

    def __init__(
        self,
        answer: Answer,
        first: Row,
        rows: AsyncIterator[Row],
        *,
        admission: Admission,
        held: AsyncExitStack,
        state: State,
        timeout_s: float,
    ) -> None:
        """`held` is left when the stream ends; `state` gets the usage of all rows. A reader has
        `timeout_s` and a little more to take it all."""
        self._until_s = asyncio.get_running_loop().time() + timeout_s + READ_GRACE_S
        self._writer = ChunkWriter(answer)
        self._first, self._rows = first, rows
        self._admission, self._held, self._state = admission, held, state
        self._error: Exception | None = None
        headers = {**_HEADERS, **admission.headers}
        super().__init__(self._events(), media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._held:
                await self._send_all(scope, receive, send)
                if self._error is not None:  # told already; the block must know too
                    raise self._error
        except Exception as error:
            if error is not self._error:
                raise

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, for as long as the reader has; then the connection is cut."""
        try:
            async with asyncio.timeout_at(self._until_s):
                await super().__call__(scope, receive, send)
        except TimeoutError:
            self._error = DeadlineExceeded("The client did not take the stream in time.")
            self._state.error = "not_read"

    async def _events(self) -> AsyncIterator[bytes]:
        """`data:` lines of every chunk and `[DONE]`, or, if the stream breaks, of an error's body
        at its end: whoever skips what it does not know must not take it for complete."""
        try:
            async for index, event in _chained(self._first, self._rows):
                for chunk in self._writer.chunks(index, event):
                    yield _data(chunk)
                if event.completion is not None:
                    self._admission.spent(event.completion.usage)
            self._state.usage = self._writer.usage
            for chunk in self._writer.closing():
                yield _data(chunk)
        except Exception as error:
            self._error, problem = error, problem_of(error)
            self._state.error = problem.code or problem.type
            yield _data(problem.body())
        else:
            yield _DONE


async def _chained(first: Row, rows: AsyncIterator[Row]) -> AsyncIterator[Row]:
    yield first
    async for row in rows:
        yield row


def _data(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8") + b"\n\n"
