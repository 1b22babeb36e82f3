"""Clients that read slowly, stop reading or vanish, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvicorn

from raydiff.openai.prompts import PromptReader
from raydiff.request import GenerationRequest
from raydiff.serve import streams
from raydiff.serve.access import Admission, Caller, OpenAccess
from raydiff.serve.api import TextApi
from raydiff.serve.replica import ReplicaCore
from raydiff.serve.served import ServedModel
from tests.serve.conftest import MAX_BODY_BYTES, MODEL, FakeReplicas

LONG = 1024
FEW = {"steps": 2}
PROMPTS = [f"prompt {i}" for i in range(8)]


@dataclass(frozen=True)
class Addresses:
    """Of one server."""

    near: str
    """A Unix socket: what is sent and not read takes up little room."""
    far: tuple[str, int]
    """Loopback."""


class CountedAccess(OpenAccess):
    """Admits all and knows how many are inside."""

    inside = 0

    @asynccontextmanager
    async def admit(
        self, caller: Caller, model: str, requests: Sequence[GenerationRequest]
    ) -> AsyncIterator[Admission]:
        self.inside += 1
        try:
            async with super().admit(caller, model, requests) as admission:
                yield admission
        finally:
            self.inside -= 1


@pytest.fixture
def access() -> CountedAccess:
    return CountedAccess()


@pytest_asyncio.fixture
async def server(
    core: ReplicaCore, reader: PromptReader, access: CountedAccess, tmp_path: Path
) -> AsyncIterator[Addresses]:
    """The endpoints behind uvicorn, in this loop."""
    model = ServedModel(
        name=MODEL, reader=reader, replicas=FakeReplicas(core), min_replicas=1, created=0
    )
    api = TextApi(
        {MODEL: model}, request_timeout_s=60, max_body_bytes=MAX_BODY_BYTES, access=access
    )
    near, far = socket.socket(socket.AF_UNIX), socket.socket()
    near.bind(str(tmp_path / "socket"))
    far.bind(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(api.app(), log_level="critical", lifespan="off"))
    task = asyncio.create_task(running.serve(sockets=[near, far]))
    while not running.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield Addresses(near=near.getsockname(), far=far.getsockname())
    running.should_exit = running.force_exit = True
    await task


@asynccontextmanager
async def opened(
    address: str | tuple[str, int], body: Mapping[str, Any], timeout_s: float = 60
) -> AsyncIterator[socket.socket]:
    """A connection that has sent a request."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as connection:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address)
        await _ask(connection, body, timeout_s)
        yield connection


async def _ask(connection: socket.socket, body: Mapping[str, Any], timeout_s: float) -> None:
    raw = json.dumps({"stream": True, **body}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
        f"x-request-timeout-seconds: {timeout_s}\r\nConnection: close\r\n"
        f"Content-Length: {len(raw)}\r\n\r\n"
    )
    await asyncio.get_running_loop().sock_sendall(connection, head.encode() + raw)


async def read_all(connection: socket.socket) -> bytes:
    loop, read = asyncio.get_running_loop(), b""
    while piece := await loop.sock_recv(connection, 2**16):
        read += piece
    return read


def chunks_of(response: bytes) -> list[dict[str, Any]]:
    """The JSON of each event of a response in HTTP's own chunks."""
    body, rest = b"", response.split(b"\r\n\r\n", 1)[1]
    while rest:
        size, rest = rest.split(b"\r\n", 1)
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def until(holds: Callable[[], Awaitable[bool]], what: str, within_s: float = 20) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - what is watched has no event
            await asyncio.sleep(0.01)


async def idle(core: ReplicaCore) -> bool:
    return bool((await core.describe())["requests"] == 0)


async def test_a_slow_reader_loses_nothing_and_holds_nobody_up(
    server: Addresses, core: ReplicaCore, access: CountedAccess
) -> None:
    """Its slot is free when the text is done, though little of it is read; what waits for it is
    merged, and others are served meanwhile."""
    body = {"prompt": PROMPTS, "max_tokens": 400, "seed": 1, "logprobs": 5, "diffusion": FEW}
    async with opened(server.near, body) as connection:
        fast = chunks_of(await read_all(connection))
    async with opened(server.near, body) as slow:
        await until(lambda: _inside(access, 1), "the slow one is in")
        async with opened(server.near, {"prompt": "b", "max_tokens": 16}) as connection:
            assert chunks_of(await read_all(connection))
        await until(lambda: idle(core), "the engine is done with it")
        assert access.inside == 1
        late = chunks_of(await read_all(slow))
    assert text_of(late) == text_of(fast)
    assert logprobs_of(late) == logprobs_of(fast)
    assert len(late) < len(fast)


async def test_a_client_that_vanishes_hard_frees_its_slot(
    server: Addresses, core: ReplicaCore
) -> None:
    """The connection is reset, not closed."""
    async with opened(server.far, {"prompt": PROMPTS, "max_tokens": LONG}) as connection:
        await asyncio.get_running_loop().sock_recv(connection, 100)
        assert (await core.describe())["requests"] == 8
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await until(lambda: idle(core), "its rows are cancelled", within_s=1.0)


async def test_a_client_that_never_reads_is_given_up_after_its_deadline(
    server: Addresses, core: ReplicaCore, access: CountedAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half open: neither data nor an end ever comes from it. Its slot is free once its text is
    done, and all else that it holds soon after its deadline."""
    monkeypatch.setattr(streams, "READ_GRACE_S", 0.2)
    body = {"prompt": PROMPTS, "max_tokens": LONG, "logprobs": 5, "diffusion": FEW}
    async with opened(server.near, body, timeout_s=2.0):
        await until(lambda: _inside(access, 1), "it is in")
        await until(lambda: idle(core), "the engine is done with it")
        await until(lambda: _inside(access, 0), "it is given up")


async def _inside(access: CountedAccess, count: int) -> bool:
    return access.inside == count


def text_of(chunks: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts of the rows."""
    texts = [""] * len(PROMPTS)
    for choice in choices_of(chunks):
        texts[choice["index"]] += choice["text"]
    return texts


def logprobs_of(chunks: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The tokens that chunks give log-probabilities of, by row."""
    tokens: list[list[str]] = [[] for _ in PROMPTS]
    for choice in choices_of(chunks):
        tokens[choice["index"]] += (choice.get("logprobs") or {}).get("tokens", [])
    return tokens


def choices_of(chunks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [choice for chunk in chunks for choice in chunk["choices"]]
