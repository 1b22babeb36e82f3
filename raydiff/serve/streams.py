"""Streaming: several rows merged into one stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from raydiff.errors import EngineError
from raydiff.openai.answers import Answer, total
from raydiff.openai.problems import problem_of
from raydiff.request import Event, Usage

Row = tuple[int, Event]
"""The number of a row, and something that happened to it."""

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def merged(streams: Sequence[AsyncIterator[Event]]) -> AsyncIterator[Row]:
    """Yield the events of all streams as they come; closing it closes them.

    Raises:
        EngineError: a row failed; whatever else a stream raises comes through.
    """
    queue: asyncio.Queue[Row | Exception] = asyncio.Queue()
    tasks = [
        asyncio.create_task(_pump(index, stream, queue)) for index, stream in enumerate(streams)
    ]
    try:
        left = len(tasks)
        while left:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            completion = item[1].completion
            if completion is not None:
                left -= 1
                if completion.finish_reason == "error":
                    raise EngineError(completion.error or "The engine failed.")
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    index: int, stream: AsyncIterator[Event], queue: asyncio.Queue[Row | Exception]
) -> None:
    generator = cast("Any", stream)  # all streams are generators, whose type has no short name
    async with aclosing(generator):
        try:
            async for event in stream:
                queue.put_nowait((index, event))
        except Exception as error:
            queue.put_nowait(error)


class EventStream(StreamingResponse):
    """Server-sent events of rows; whatever way it ends, the rows still running are cancelled."""

    def __init__(
        self, answer: Answer, first: Row, rows: AsyncIterator[Row], include_usage: bool
    ) -> None:
        self._rows = rows
        body = server_sent_events(answer, first, rows, include_usage)
        super().__init__(body, media_type="text/event-stream", headers=_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(cast("Any", self._rows)):
            await super().__call__(scope, receive, send)


async def server_sent_events(
    answer: Answer, first: Row, rows: AsyncIterator[Row], include_usage: bool
) -> AsyncIterator[bytes]:
    """`data:` lines of every chunk, an error's body if the stream breaks, then `[DONE]`."""
    opened: set[int] = set()
    usages: list[Usage] = []
    try:
        async for index, event in _chained(first, rows):
            if index not in opened:
                opened.add(index)
                for chunk in answer.opening(index):
                    yield _data(chunk)
            for chunk in answer.chunks(index, event):
                yield _data(chunk)
            if event.completion is not None:
                usages.append(event.completion.usage)
        if include_usage:
            yield _data(answer.closing(total(usages)))
    except Exception as error:
        yield _data(problem_of(error).body())
    yield b"data: [DONE]\n\n"


async def _chained(first: Row, rows: AsyncIterator[Row]) -> AsyncIterator[Row]:
    yield first
    async for row in rows:
        yield row


def _data(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8") + b"\n\n"
