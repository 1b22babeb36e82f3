"""A client that goes away before its answer begins takes its request along."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from raydiff.serve.hangups import Hangups

SCOPE: Scope = {"type": "http"}
BODY: Message = {"type": "http.request", "body": b"{}", "more_body": False}
GONE: Message = {"type": "http.disconnect"}


class Waits:
    """Reads its body, then waits, after the beginning of an answer or before."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers
        self.waits, self.ended = asyncio.Event(), ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert await receive() == BODY
        if self._answers:
            await send({"type": "http.response.start", "status": 200})
        self.waits.set()
        try:
            self.ended = (await receive())["type"] if self._answers else ""
            await asyncio.sleep(0 if self._answers else 60)
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise


async def call(app: Waits) -> tuple[asyncio.Task[None], asyncio.Queue[Message]]:
    messages: asyncio.Queue[Message] = asyncio.Queue()

    async def send(message: Message) -> None:
        return None

    messages.put_nowait(BODY)
    running = asyncio.create_task(Hangups(app)(SCOPE, messages.get, send))
    await app.waits.wait()
    return running, messages


async def test_before_the_answer_the_request_is_cancelled_and_the_server_sees_no_error() -> None:
    app = Waits(answers=False)
    running, messages = await call(app)
    messages.put_nowait(GONE)
    await running
    assert app.ended == "cancelled"


async def test_an_answer_that_began_hears_of_it_itself() -> None:
    app = Waits(answers=True)
    running, messages = await call(app)
    messages.put_nowait(GONE)
    await running
    assert app.ended == "http.disconnect"


async def test_who_cancels_the_exchange_cancels_the_request() -> None:
    app = Waits(answers=False)
    running, _ = await call(app)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert app.ended == "cancelled"
