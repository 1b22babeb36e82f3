"""A backlog makes Serve's autoscaling add replicas, and the job follows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import serve
from ray.serve.config import AutoscalingConfig

from raydiff.config import CorpusSettings, deployment_name
from raydiff.corpus.directory import open_run
from raydiff.corpus.run import execute
from raydiff.request import Completion, Decoding, GenerationRequest
from raydiff.text import Tokenizer

from .conftest import WriteCorpus
from .fakes import fake_completion

APP = "autoscaled"
ROWS, TARGET_CALLS, MOST = 4, 2.0, 2
DOCUMENT_S = 0.15


class RowsReplica:
    """Works on a few documents at a time, the others wait; says so, as the real one does."""

    def __init__(self, model: str) -> None:
        self._tokenizer = Tokenizer.load(model)
        self._rows = asyncio.Semaphore(ROWS)

    async def generate(
        self, requests: Sequence[GenerationRequest], timeout_s: float
    ) -> list[Completion]:
        return list(await asyncio.gather(*(self._one(request) for request in requests)))

    async def describe(self) -> dict[str, object]:
        return {
            "max_rows": ROWS,
            "max_in_flight": 1000,
            "max_replicas": MOST,
            "target_calls": TARGET_CALLS,
        }

    async def _one(self, request: GenerationRequest) -> Completion:
        submitted_s = time.monotonic()
        async with self._rows:
            begun_s = time.monotonic()
            await asyncio.sleep(DOCUMENT_S)
        text = self._tokenizer.decode(request.prompt_ids[1:-1])
        return replace(
            fake_completion(request, text),
            queue_s=begun_s - submitted_s,
            total_s=time.monotonic() - submitted_s,
        )


@pytest.fixture
def app(ray_cluster: Any, toy_model: str) -> Iterator[str]:
    deployment = serve.deployment(
        name=deployment_name("toy"),
        max_ongoing_requests=1000,
        ray_actor_options={"num_cpus": 0.1},
        autoscaling_config=AutoscalingConfig(
            min_replicas=1,
            max_replicas=MOST,
            target_ongoing_requests=TARGET_CALLS,
            upscale_delay_s=0.1,
        ),
    )(RowsReplica)
    serve.run(deployment.bind(toy_model), name=APP, route_prefix=None)
    yield APP
    serve.shutdown()


@pytest.mark.slow
def test_a_backlog_brings_the_replicas_that_autoscaling_allows(
    tmp_path: Path, write_corpus: WriteCorpus, toy_model: str, app: str
) -> None:
    source = write_corpus(tmp_path / "a.parquet", [f"text {i}" for i in range(1500)])
    settings = CorpusSettings(
        input=str(source),
        output=str(tmp_path / "out"),
        model=toy_model,
        shard_rows=50,
        documents_per_call=2,
    )
    seen: list[int] = []
    with open_run(settings, Decoding(steps=2)) as opened:
        report = execute(opened, lambda session: seen.append(session.replicas), app_name=app)
    assert (report["summarized"], report["failed"]) == (1500, 0)
    assert seen[0] == 1
    assert max(seen) == MOST
