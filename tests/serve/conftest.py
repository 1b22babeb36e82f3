"""A tiny checkpoint; its engine behind the HTTP interface without Ray; the real application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import torch

from raydiff.bench.serving.engines import EngineReplicas
from raydiff.config import AppSettings, EngineSettings, ModelSettings, ServeSettings
from raydiff.engine import Engine, EngineLoop
from raydiff.engine.counts import WorkCounter
from raydiff.families import load_spec
from raydiff.launch import RunningApp, running_app
from raydiff.metrics import NullRecorder
from raydiff.openai.prompts import PromptReader
from raydiff.serve.api import TextApi
from raydiff.serve.replica import ReplicaCore
from raydiff.serve.served import ServedModel
from raydiff.text import Tokenizer
from tests.serve.checkpoint import write_checkpoint

MODEL = "tiny"
MAX_BODY_BYTES = 100_000


class FakeReplicas(EngineReplicas):
    """Stands for a Client: calls one replica's core directly, without Serve in between."""

    def __init__(self, core: ReplicaCore) -> None:
        super().__init__(core, WorkCounter(NullRecorder()))

    async def describe(self, *, timeout_s: float) -> list[dict[str, Any]]:
        return [await self._core.describe()]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model's directory, named `tiny`."""
    return write_checkpoint(tmp_path_factory.mktemp("models") / MODEL)


@pytest.fixture(scope="session")
def reader(checkpoint: Path) -> PromptReader:
    return PromptReader(spec=load_spec(checkpoint), tokenizer=Tokenizer.load(checkpoint))


@pytest.fixture
def engine_settings() -> EngineSettings:
    """Overridden where a test wants a smaller engine."""
    return EngineSettings(threads=1)


@pytest.fixture
def core(checkpoint: Path, engine_settings: EngineSettings) -> Iterator[ReplicaCore]:
    """A replica's core on a running engine."""
    engine = Engine.load(checkpoint, device="cpu", settings=engine_settings)
    torch.set_num_threads(1)
    loop = EngineLoop(engine)
    loop.start()
    yield ReplicaCore(loop, engine.spec)
    loop.stop()


@pytest.fixture
def api(core: ReplicaCore, reader: PromptReader) -> TextApi:
    """The endpoints in front of one replica."""
    model = ServedModel(
        name=MODEL, reader=reader, replicas=FakeReplicas(core), min_replicas=1, created=0
    )
    return TextApi({MODEL: model}, request_timeout_s=60, max_body_bytes=MAX_BODY_BYTES)


@pytest.fixture(scope="module")
def shared_model(checkpoint: Path, reader: PromptReader) -> Iterator[ServedModel]:
    """A real engine, for all tests of a module."""
    loop = EngineLoop(Engine.load(checkpoint, device="cpu", settings=EngineSettings(threads=1)))
    loop.start()
    yield ServedModel(
        name=MODEL,
        reader=reader,
        replicas=FakeReplicas(ReplicaCore(loop, reader.spec)),
        min_replicas=1,
        created=0,
        fingerprint="rd_test",
    )
    loop.stop()


@pytest.fixture(scope="module")
def shared_api(shared_model: ServedModel) -> TextApi:
    """The endpoints in front of that engine."""
    return TextApi({MODEL: shared_model}, request_timeout_s=60, max_body_bytes=MAX_BODY_BYTES)


@pytest_asyncio.fixture
async def http(api: TextApi) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of the endpoints, without sockets."""
    transport = httpx.ASGITransport(app=api.app(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test/v1") as client:
        yield client


@pytest.fixture(scope="package")
def serving(ray_cluster: dict[str, Any], checkpoint: Path) -> Iterator[RunningApp]:
    """The real application with one replica of the tiny model, on the session's cluster."""
    model = ModelSettings(model=str(checkpoint), device="cpu", num_cpus=1)
    with running_app(AppSettings(models=(model,)), ServeSettings(port=0)) as app:
        yield app
