"""The endpoints behind keys, with replicas that answer at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from raydiff.config import AccessSettings
from raydiff.openai.prompts import PromptReader
from raydiff.request import Completion, Event, GenerationRequest, Usage
from raydiff.serve.access import access_of
from raydiff.serve.access.keys import hash_of
from raydiff.serve.access.rates import Authority
from raydiff.serve.access.rates.messages import Reply, Report
from raydiff.serve.api import TextApi
from raydiff.serve.served import ServedModel

TOKENS = 3
"""Of each answer."""


class Instant:
    """Replicas that answer every prompt with the same text, after `delay_s`."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.error: Exception | None = None
        self.seen: list[GenerationRequest] = []

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        self.seen += requests
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        return [completion(request) for request in requests]

    async def stream(self, request: GenerationRequest, *, timeout_s: float) -> AsyncIterator[Event]:
        self.seen.append(request)
        yield Event(request_id=request.request_id, text="a")
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        yield Event(request_id=request.request_id, text="bc", completion=completion(request))

    async def describe(self, *, timeout_s: float) -> list[dict[str, Any]]:
        return [{}]


class Direct:
    """The way to an authority in this process that has settled long ago."""

    def __init__(self) -> None:
        self._ahead_s = -100.0
        self.authority = Authority(clock=lambda: time.time() + self._ahead_s)
        self._ahead_s = 0.0

    async def exchange(self, report: Report) -> Reply:
        return self.authority.exchange(report)


def completion(request: GenerationRequest) -> Completion:
    usage = Usage(prompt_tokens=len(request.prompt_ids), completion_tokens=TOKENS, forwards=TOKENS)
    return Completion(
        request_id=request.request_id,
        text="abc",
        token_ids=(5, 6, 7),
        finish_reason="stop",
        usage=usage,
    )


def write_keys(path: Path, *entries: dict[str, Any]) -> None:
    """A key file whose keys are `key-ID`."""
    keys = [{"hash": hash_of(f"key-{entry['id']}"), **entry} for entry in entries]
    path.write_text(yaml.safe_dump({"keys": keys}))


@pytest.fixture
def replicas() -> Instant:
    return Instant()


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.yaml"
    write_keys(path, {"id": "alice"}, {"id": "bob", "models": ["small*"], "lane": "batch"})
    return path


Opened = Callable[..., httpx.AsyncClient]


@pytest.fixture
def opened(replicas: Instant, reader: PromptReader, keys_file: Path) -> Opened:
    """Makes clients of the endpoints, without sockets: `opened(key, **settings)`."""

    def open_(key: str | None = None, **values: Any) -> httpx.AsyncClient:
        settings = AccessSettings(keys_file=str(keys_file), **values)
        models = {
            name: ServedModel(
                name=name, reader=reader, replicas=replicas, min_replicas=1, created=0
            )
            for name in ("small", "large")
        }
        api = TextApi(
            models,
            request_timeout_s=60,
            max_body_bytes=10**6,
            access=access_of(settings, Direct(), 1),
            settings=settings,
        )
        transport = httpx.ASGITransport(app=api.app(), raise_app_exceptions=False)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers)

    return open_
