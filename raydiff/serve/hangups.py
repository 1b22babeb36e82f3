"""Clients that go away before their answer begins: the request ends with them.

Serve's proxy sees to that itself. Behind HAProxy the gateway's own HTTP server only says that the
client is gone, and an answer that is not a stream asks nobody.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_GONE = "http.disconnect"


class Hangups:
    """Cancels a request whose client goes away while it waits for the answer to begin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await _Exchange(receive, send).run(self._app, scope)


class _Exchange:
    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._gone = asyncio.Event()
        self._answers = False
        self._listener: asyncio.Task[None] | None = None
        self._request: asyncio.Task[None] | None = None

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        self._request = asyncio.ensure_future(_running(app, scope, self._hear, self._say))
        try:
            await self._request
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._gone.is_set() or (task is not None and task.cancelling()):
                raise  # somebody cancelled us, and with us the request
        finally:
            if self._listener is not None:
                self._listener.cancel()

    async def _hear(self) -> Message:
        if self._listener is not None:
            await self._gone.wait()
            return {"type": _GONE}
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._listener = asyncio.ensure_future(self._listen())
        return message

    async def _listen(self) -> None:
        """After the body nothing comes but the client's end."""
        while (await self._receive())["type"] != _GONE:
            pass
        self._gone.set()
        if not self._answers and self._request is not None:
            self._request.cancel()

    async def _say(self, message: Message) -> None:
        self._answers = True
        await self._send(message)


async def _running(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)
