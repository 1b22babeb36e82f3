"""The real application on a real cluster, called with the real openai client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import openai
import pytest
import pytest_asyncio
import ray
from openai.types.chat import ChatCompletionUserMessageParam
from prometheus_client.samples import Sample

from raydiff.client import Client
from raydiff.config import AppSettings, ServeSettings
from raydiff.errors import ClusterError
from raydiff.launch import RunningApp, running_app
from raydiff.metrics import (
    CATALOGUE,
    DOCUMENTS,
    FORWARD_ROWS,
    FORWARDS,
    OUTPUT_TOKENS,
    SHARDS,
    Metric,
)
from raydiff.openai.prompts import PromptReader
from raydiff.request import Completion, Decoding, GenerationRequest
from tests.serve.checkpoint import write_checkpoint
from tests.serve.conftest import MODEL
from tests.serve.scrape import scrape, scrape_until, value

CONCURRENT = 64
LONG = 1024


@pytest.fixture
def sync_openai(serving: RunningApp) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{serving.url}/v1", api_key="none", max_retries=0)


@pytest_asyncio.fixture
async def async_openai(serving: RunningApp) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{serving.url}/v1", api_key="none", max_retries=0, timeout=120
    ) as client:
        yield client


@pytest.fixture
def replicas(serving: RunningApp) -> Client:
    return Client.connect(MODEL, serving.app_name)


def messages(text: str) -> list[ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": text}]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    for _ in range(300):
        if await condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the condition never held")


async def in_flight(replicas: Client) -> int:
    """Requests that the replicas hold."""
    return sum(r["requests"] for r in await replicas.describe(timeout_s=30))


def long_requests(reader: PromptReader, count: int) -> list[GenerationRequest]:
    decoding = reader.spec.resolve(Decoding(max_tokens=LONG, seed=5, temperature=1.0))
    ids = [reader.tokenizer.prompt_ids(f"document {i}") for i in range(count)]
    return [
        GenerationRequest(request_id=str(i), prompt_ids=ids[i], decoding=decoding)
        for i in range(count)
    ]


def test_the_openai_client_completes_and_chats(sync_openai: openai.OpenAI) -> None:
    assert [model.id for model in sync_openai.models.list()] == [MODEL]
    done = sync_openai.completions.create(
        model=MODEL, prompt=["one", "two"], max_tokens=5, extra_body={"diffusion": {"steps": 4}}
    )
    assert [len(choice.text) for choice in done.choices] == [5, 5]
    assert done.usage is not None
    assert done.usage.completion_tokens == 10
    chat = sync_openai.chat.completions.create(model=MODEL, messages=messages("hi"), max_tokens=5)
    assert chat.choices[0].finish_reason == "length"
    assert len(chat.choices[0].message.content or "") == 5


async def test_the_async_openai_client_streams_what_it_would_get_whole(
    async_openai: openai.AsyncOpenAI,
) -> None:
    whole = await async_openai.chat.completions.create(
        model=MODEL, messages=messages("hi"), max_tokens=100, seed=2
    )
    stream = await async_openai.chat.completions.create(
        model=MODEL,
        messages=messages("hi"),
        max_tokens=100,
        seed=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert len(chunks) > 4
    assert chunks[-1].usage == whole.usage


def test_the_openai_client_raises_what_the_status_says(sync_openai: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        sync_openai.completions.create(model="other", prompt="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        sync_openai.completions.create(
            model=MODEL, prompt="x", extra_body={"diffusion": {"steps": 0}}
        )
    assert wrong.value.param == "diffusion.steps"
    with pytest.raises(openai.BadRequestError) as hot:
        sync_openai.completions.create(
            model=MODEL, prompt="x", extra_body={"diffusion": {"threshold": 2}}
        )
    assert hot.value.param == "diffusion.threshold"


@pytest.mark.parametrize("stream", [False, True])
def test_a_deadline_is_answered_in_json_and_not_by_serves_proxy(
    serving: RunningApp, stream: bool
) -> None:
    response = httpx.post(
        f"{serving.url}/v1/completions",
        json={"prompt": ["x"] * 64, "max_tokens": LONG, "stream": stream},
        headers={"x-request-timeout-seconds": "1"},
        timeout=60,
    )
    if stream and response.status_code == 200:
        assert '"code":"deadline_exceeded"' in response.text
        assert "[DONE]" not in response.text
    else:
        assert response.status_code == 408
        assert response.json()["error"]["code"] == "deadline_exceeded"


def test_health_counts_the_replicas(serving: RunningApp) -> None:
    response = httpx.get(f"{serving.url}/health", timeout=30)
    assert (response.status_code, response.json()["replicas"]) == (200, {MODEL: 1})


@pytest.mark.parametrize("path", ["v1/models", "v1/nothing", "docs"])
def test_an_answer_has_one_request_id_though_serve_sets_it_too(
    serving: RunningApp, path: str
) -> None:
    response = httpx.get(f"{serving.url}/{path}", headers={"x-request-id": "mine"}, timeout=30)
    assert response.headers.get_list("x-request-id") == ["mine"]
    unnamed = httpx.get(f"{serving.url}/{path}", timeout=30)
    assert len(unnamed.headers.get_list("x-request-id")) == 1


async def test_64_requests_at_once_all_succeed_and_share_forwards(
    serving: RunningApp, async_openai: openai.AsyncOpenAI
) -> None:
    before = await asyncio.to_thread(scrape, serving.metrics_url)
    answers = await asyncio.gather(
        *(
            async_openai.completions.create(model=MODEL, prompt=f"text {i}", max_tokens=256)
            for i in range(CONCURRENT)
        )
    )
    assert [a.usage.completion_tokens for a in answers if a.usage] == [256] * CONCURRENT
    row_forwards = sum((a.model_extra or {})["diffusion"]["forwards"] for a in answers)
    enough = denoised(FORWARD_ROWS, before) + row_forwards
    after = await asyncio.to_thread(
        scrape_until,
        serving.metrics_url,
        lambda samples: denoised(FORWARD_ROWS, samples) >= enough,
    )
    rows, forwards = (denoised(m, after) - denoised(m, before) for m in (FORWARD_ROWS, FORWARDS))
    assert rows / forwards > 8


def denoised(metric: Metric, samples: list[Sample]) -> float:
    """A counter's value over denoising forwards."""
    return value(samples, metric.ray_name, kind="denoise")


async def test_a_client_that_goes_away_frees_its_rows(
    serving: RunningApp, replicas: Client
) -> None:
    for stream in (True, False):
        body = {"prompt": ["x"] * 32, "max_tokens": LONG, "stream": stream}
        async with httpx.AsyncClient(timeout=60) as client:
            call = asyncio.create_task(client.post(f"{serving.url}/v1/completions", json=body))
            await until(lambda: _at_least(replicas, 1))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        await until(lambda: _none(replicas))


async def test_cancelling_a_call_through_the_handle_frees_its_rows(
    replicas: Client, reader: PromptReader
) -> None:
    call = asyncio.create_task(replicas.generate(long_requests(reader, 32), timeout_s=120))
    await until(lambda: _at_least(replicas, 32))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: _none(replicas))


async def _at_least(replicas: Client, count: int) -> bool:
    return await in_flight(replicas) >= count


async def _none(replicas: Client) -> bool:
    return await in_flight(replicas) == 0


def test_a_scrape_shows_the_catalogue_under_rays_names(
    serving: RunningApp, sync_openai: openai.OpenAI
) -> None:
    sync_openai.completions.create(model=MODEL, prompt="x", max_tokens=16)
    names = {
        f"{m.ray_name}_count" if m.kind == "histogram" else m.ray_name
        for m in CATALOGUE
        # those are the corpus workers', and of models that keep beginnings of prompts
        if m not in (DOCUMENTS, SHARDS) and not m.name.startswith("raydiff_prefix")
    }
    samples = scrape_until(
        serving.metrics_url,
        lambda found: (
            names <= {sample.name for sample in found}
            and value(found, OUTPUT_TOKENS.ray_name, model=MODEL) > 0
        ),
    )
    ours = {sample.name for sample in samples if sample.name.startswith("ray_raydiff_")}
    known = {m.ray_name + suffix for m in CATALOGUE for suffix in ("", "_count", "_sum", "_bucket")}
    assert ours <= known
    assert value(samples, OUTPUT_TOKENS.ray_name, model=MODEL) > 0
    assert value(samples, FORWARDS.ray_name, model=MODEL, kind="encode") > 0
    labels = next(
        s.labels for s in samples if s.name == OUTPUT_TOKENS.ray_name and s.labels["model"] == MODEL
    )
    assert labels["deployment"] == f"model-{MODEL}"


def test_a_running_app_is_used_and_left_running(serving: RunningApp, checkpoint: Path) -> None:
    settings = AppSettings(model=str(checkpoint))
    with running_app(settings, ServeSettings(port=0)) as app:
        assert (app.started_app, app.started_cluster, app.url) == (False, False, serving.url)
    assert httpx.get(f"{serving.url}/health", timeout=30).status_code == 200


def test_an_app_that_serves_something_else_is_refused_and_left_alone(
    serving: RunningApp, tmp_path: Path
) -> None:
    other = write_checkpoint(tmp_path / "other")
    with (
        pytest.raises(ClusterError, match=r"already runs application 'raydiff'.*other"),
        running_app(AppSettings(model=str(other)), ServeSettings(port=0)),
    ):
        pass
    assert httpx.get(f"{serving.url}/health", timeout=30).status_code == 200


def test_a_model_that_no_app_serves_is_a_cluster_error(serving: RunningApp) -> None:
    with pytest.raises(ClusterError, match="absent"):
        Client.connect("absent", serving.app_name)


async def test_a_replica_killed_in_mid_call_costs_time_and_nothing_else(
    replicas: Client, reader: PromptReader
) -> None:
    requests = long_requests(reader, 16)
    undisturbed = await replicas.generate(requests, timeout_s=120)
    call = asyncio.create_task(replicas.generate(requests, timeout_s=240))
    await until(lambda: _at_least(replicas, 16))
    await asyncio.to_thread(kill_a_replica)
    assert not call.done()
    assert texts(await call) == texts(undisturbed)


def texts(completions: list[Completion]) -> list[str]:
    return [completion.text for completion in completions]


def kill_a_replica() -> None:
    """Kill the actor of the model's replica, as a crash would."""
    names = [
        actor["name"]
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if f"model-{MODEL}" in actor["name"]
    ]
    (name,) = names
    ray.kill(ray.get_actor(name, namespace="serve"))
    time.sleep(0.1)
