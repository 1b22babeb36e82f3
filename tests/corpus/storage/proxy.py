"""A proxy between client and S3 server that does what networks and stores do on bad days.

Faults are switched by attributes at any time and counted; the proxy runs in a thread.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_SLOW_DOWN = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)
_CHUNK = 64 * 1024


class FaultProxy:
    """Shares are of all requests, between 0 and 1, drawn from a seeded generator."""

    def __init__(self, target: str, seed: int = 0) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._random = random.Random(seed)
        self._out = False
        self._hangs = False
        self.url = ""
        self.counts: Counter[str] = Counter()
        """Requests by what became of them."""
        self.slow_down = 0.0
        """Share answered with 503 SlowDown, unseen by the server."""
        self.cut_body = 0.0
        """Share whose answer is cut in the middle of its body."""
        self.lose_answer = 0.0
        """Share that the server carries out, but whose answer never comes."""
        self.bytes_per_s = 0.0
        """Speed of answers; 0 is as fast as can be."""
        self.only: str | None = None
        """Faults befall only requests whose first line holds this text."""

    def heal(self) -> None:
        """No more faults."""
        self.slow_down = self.cut_body = self.lose_answer = self.bytes_per_s = 0.0
        self.only = None
        self.end_outage()

    @contextmanager
    def outage(self, *, hangs: bool = False) -> Iterator[None]:
        """Nothing gets through: connections are cut, or when it `hangs`, nothing ever answers."""
        self.begin_outage(hangs=hangs)
        try:
            yield
        finally:
            self.end_outage()

    def begin_outage(self, *, hangs: bool = False) -> None:
        self._hangs = hangs
        self._out = True

    def end_outage(self) -> None:
        self._out = False

    async def serve(self, started: Future[str], stop: asyncio.Event) -> None:
        """Listen until told to stop."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=2**20)
        port = server.sockets[0].getsockname()[1]
        started.set_result(f"http://127.0.0.1:{port}")
        async with server:
            await stop.wait()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._request(reader, writer)
        writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request; the connection ends with its answer."""
        head = await reader.readuntil(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in map(_field, fields)}
        if await self._outage(writer):
            return
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        fault = self._draw(line)
        self.counts[fault] += 1
        if fault == "slow_down":
            await self._answer_slow_down(writer)
            return
        dropped = ("connection:", "expect:")
        kept = [field for field in fields if not field.lower().startswith(dropped)]
        request = "\r\n".join([line, "Connection: close", *kept]).encode("latin-1") + body
        await self._forward(request, writer, fault)

    def _draw(self, line: str) -> str:
        drawn = self._random.random()
        if self.only is None or self.only in line:
            for name in ("slow_down", "cut_body", "lose_answer"):
                drawn -= getattr(self, name)
                if drawn < 0:
                    return name
        return "passed"

    async def _outage(self, writer: asyncio.StreamWriter) -> bool:
        if not self._out:
            return False
        self.counts["outage"] += 1
        # The switch is thrown in another thread, which no asyncio.Event would see.
        while self._out and self._hangs:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        writer.transport.abort()
        return True

    async def _answer_slow_down(self, writer: asyncio.StreamWriter) -> None:
        head = (
            "HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
            f"Content-Length: {len(_SLOW_DOWN)}\r\n\r\n"
        )
        writer.write(head.encode() + _SLOW_DOWN)
        await writer.drain()

    async def _forward(self, request: bytes, writer: asyncio.StreamWriter, fault: str) -> None:
        upstream, to_server = await asyncio.open_connection(self._host, self._port, limit=2**20)
        try:
            to_server.write(request)
            await to_server.drain()
            head = await upstream.readuntil(b"\r\n\r\n")
            if fault == "lose_answer":
                await upstream.read()
                writer.transport.abort()
                return
            writer.write(head)
            left = _content_length(head) // 2 if fault == "cut_body" else None
            await self._pass_on(upstream, writer, left)
            if fault == "cut_body":
                writer.transport.abort()
        finally:
            to_server.close()

    async def _pass_on(
        self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
    ) -> None:
        """Pass on the answer's body, or as much of it as is `left` until the cut."""
        while left is None or left > 0:
            size = _CHUNK if not self.bytes_per_s else max(1, int(self.bytes_per_s / 20))
            block = await upstream.read(size if left is None else min(size, left))
            if not block:
                return
            if self._out:
                await self._outage(writer)
                return
            writer.write(block)
            await writer.drain()
            left = None if left is None else left - len(block)
            if self.bytes_per_s:
                await asyncio.sleep(len(block) / self.bytes_per_s)


def _field(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def _content_length(head: bytes) -> int:
    for line in head.decode("latin-1").lower().split("\r\n"):
        if line.startswith("content-length:"):
            return int(line.partition(":")[2])
    return 0


@contextmanager
def fault_proxy(target: str, seed: int = 0) -> Iterator[FaultProxy]:
    """Run a proxy to the server at `target`; give clients its `url` instead."""
    proxy = FaultProxy(target, seed)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    started: Future[str] = Future()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(proxy.serve(started, stop))
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run, name="fault-proxy", daemon=True)
    thread.start()
    try:
        proxy.url = started.result(timeout=30)
        yield proxy
    finally:
        proxy.heal()
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=30)
