"""A proxy between client and S3 server that does what networks and stores do on bad days.

Faults are switched by attributes at any time and counted; the proxy runs in threads.
"""

from __future__ import annotations

import random
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO
from urllib.parse import urlsplit

_SLOW_DOWN = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)
_CHUNK = 64 * 1024
_STEPS_PER_S = 20
_NOT_PASSED_ON = ("connection:", "expect:")


class FaultProxy:
    """Shares are of all requests, between 0 and 1, drawn from a seeded generator."""

    def __init__(self, target: str, seed: int = 0) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._random = random.Random(seed)
        self._out = False
        self._hangs = False
        self._lock = threading.Lock()
        self.url = ""
        """What clients are given in place of the server's address."""
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
        """Shares concern only requests whose first line holds this text."""

    def heal(self) -> None:
        """No more faults."""
        self.slow_down = self.cut_body = self.lose_answer = self.bytes_per_s = 0.0
        self.only = None
        self.end_outage()

    def start_over(self, seed: int = 0) -> None:
        """No faults, no counts, and the same draws as at the beginning."""
        self.heal()
        with self._lock:
            self._random = random.Random(seed)
            self.counts.clear()

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

    def carry(self, client: socket.socket) -> None:
        """Carry one request and its answer, with which the connection ends."""
        with client.makefile("rb") as stream:
            head = _read_head(stream)
            if not head or self._is_out(client):
                return
            line, *fields = head.decode("latin-1").rstrip().split("\r\n")
            if _field(fields, "expect").lower() == "100-continue":
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = stream.read(int(_field(fields, "content-length") or 0))
        fault = self._draw(line)
        if fault == "slow_down":
            client.sendall(_slow_down())
            return
        kept = [field for field in fields if not field.lower().startswith(_NOT_PASSED_ON)]
        request = "\r\n".join([line, "Connection: close", *kept, "", ""]).encode("latin-1")
        with socket.create_connection(self._target) as server:
            server.sendall(request + body)
            with server.makefile("rb") as answer:
                self._answer(answer, client, fault)

    def _draw(self, line: str) -> str:
        with self._lock:
            drawn = self._random.random()
            fault = "passed"
            if self.only is None or self.only in line:
                for name in ("slow_down", "cut_body", "lose_answer"):
                    drawn -= getattr(self, name)
                    if drawn < 0:
                        fault = name
                        break
            self.counts[fault] += 1
            return fault

    def _is_out(self, client: socket.socket) -> bool:
        if not self._out:
            return False
        with self._lock:
            self.counts["outage"] += 1
        while self._out and self._hangs:
            time.sleep(1 / _STEPS_PER_S)
        _abort(client)
        return True

    def _answer(self, answer: BinaryIO, client: socket.socket, fault: str) -> None:
        head = _read_head(answer)
        if fault == "lose_answer":
            answer.read()
            _abort(client)
            return
        client.sendall(head)
        fields = head.decode("latin-1").rstrip().split("\r\n")
        left = int(_field(fields, "content-length") or 0) // 2 if fault == "cut_body" else None
        while left is None or left > 0:
            size = int(self.bytes_per_s / _STEPS_PER_S) or _CHUNK
            block = answer.read(size if left is None else min(size, left))
            if not block or self._is_out(client):
                return
            client.sendall(block)
            left = None if left is None else left - len(block)
            if self.bytes_per_s:
                time.sleep(len(block) / self.bytes_per_s)
        _abort(client)


def _read_head(stream: BinaryIO) -> bytes:
    lines = []
    while line := stream.readline():
        lines.append(line)
        if line == b"\r\n":
            return b"".join(lines)
    return b""


def _field(fields: list[str], name: str) -> str:
    found = (field.partition(":") for field in fields)
    return next((value.strip() for key, _, value in found if key.lower() == name), "")


def _slow_down() -> bytes:
    head = (
        "HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
        f"Content-Length: {len(_SLOW_DOWN)}\r\n\r\n"
    )
    return head.encode() + _SLOW_DOWN


def _abort(client: socket.socket) -> None:
    """Have the connection reset, not ended in good order."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.proxy = proxy

    def shutdown_request(self, request: object) -> None:
        """Close without a word more: `_abort` means what it says."""
        assert isinstance(request, socket.socket)
        request.close()


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        with suppress(OSError):
            self.server.proxy.carry(self.request)


@contextmanager
def fault_proxy(target: str, seed: int = 0) -> Iterator[FaultProxy]:
    """Run a proxy to the server at `target`; give clients its `url` instead."""
    proxy = FaultProxy(target, seed)
    with _Server(proxy) as server:
        proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.heal()
            server.shutdown()
            thread.join()
