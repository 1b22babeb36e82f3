"""Clients that people use run unchanged: OpenAI's for Python and Node, LangChain's chat model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from raydiff.serve.api import TextApi
from tests.serve.conftest import MODEL
from tests.serve.live import listening

NODE_MODULES = os.environ.get("RAYDIFF_NODE_MODULES", "")
"""A folder with the `openai` package of npm; without one the Node client is not tested."""


@pytest.fixture(scope="module")
def url(shared_api: TextApi) -> Iterator[str]:
    """The endpoints in front of a real engine, on a socket."""
    with listening(shared_api.app()) as address:
        yield f"{address}/v1"


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


USER: list[Any] = [{"role": "user", "content": "hi"}]


def test_the_python_client_chats_streamed_and_not(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model=MODEL, messages=USER, max_completion_tokens=40, seed=2, n=2, logprobs=True
    )
    assert whole.system_fingerprint == "rd_test"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 80
    texts = ["", ""]
    spelled = ["", ""]
    stream = client.chat.completions.create(
        model=MODEL,
        messages=USER,
        max_completion_tokens=40,
        seed=2,
        n=2,
        logprobs=True,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.logprobs is not None:
                spelled[choice.index] += "".join(t.token for t in choice.logprobs.content or ())
        last = chunk
    assert texts == [choice.message.content for choice in whole.choices] == spelled
    assert last.usage == whole.usage


def test_the_python_clients_stream_helper_adds_up_the_chunks(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=40, seed=2)
    text = whole.choices[0].message.content or ""
    with client.chat.completions.stream(
        model=MODEL, messages=USER, max_tokens=40, seed=2, stop=[text[20:23], text[30:]]
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == text[: text.index(text[20:23])]


async def test_the_async_python_client_completes_streamed_and_not(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        asked: dict[str, Any] = {"model": MODEL, "prompt": ["a", "b"], "max_tokens": 40, "seed": 1}
        whole = await client.completions.create(**asked, logprobs=2)
        logprobs = whole.choices[1].logprobs
        assert logprobs is not None
        assert "".join(logprobs.tokens or ()) == whole.choices[1].text
        texts = ["", ""]
        async for chunk in await client.completions.create(**asked, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].text
        assert texts == [choice.text for choice in whole.choices]


def test_the_python_client_sees_request_ids_and_named_errors(client: openai.OpenAI) -> None:
    raw = client.models.with_raw_response.list(extra_headers={"x-request-id": "mine-1"})
    assert raw.headers.get_list("x-request-id") == ["mine-1"]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=USER, presence_penalty=1)
    assert refused.value.param == "presence_penalty"
    assert refused.value.request_id


def test_the_python_client_raises_when_a_stream_breaks(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model=MODEL,
        prompt="x",
        max_tokens=1024,
        stream=True,
        extra_headers={"x-request-timeout-seconds": "0.3"},
    )
    with pytest.raises(openai.APIError, match="not done within"):
        for _ in stream:
            pass


@pytest.fixture
def langchain(url: str) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=url, api_key=SecretStr("none"), model=MODEL, max_retries=0, seed=4, max_tokens=40
    )


async def test_langchains_chat_model_invokes_batches_and_streams(langchain: ChatOpenAI) -> None:
    chat = [
        SystemMessage("be brief"),
        HumanMessage("one"),
        AIMessage("two"),
        HumanMessage("three"),
    ]
    whole = langchain.invoke(chat)
    assert len(str(whole.content)) == 40
    assert whole.response_metadata["finish_reason"] == "length"
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == 40
    assert (await langchain.ainvoke(chat)).content == whole.content
    assert [m.content for m in langchain.batch([chat, chat])] == [whole.content] * 2
    assert "".join(str(m.content) for m in langchain.stream(chat)) == whole.content
    streamed = [str(m.content) async for m in langchain.astream(chat, stream_usage=True)]
    assert "".join(streamed) == whole.content


@pytest.mark.skipif(
    shutil.which("node") is None or not NODE_MODULES,
    reason="needs node, and RAYDIFF_NODE_MODULES with npm's openai",
)
def test_the_node_client_chats_completes_and_streams(url: str, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(NODE_MODULES, target_is_directory=True)
    script = tmp_path / "client.mjs"
    script.write_text((Path(__file__).parent / "client.mjs").read_text())
    done = subprocess.run(
        ["node", str(script), url, MODEL], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["streamed"] == said["whole"]
    assert said["usage"]["completion_tokens"] == 40
    assert said["completed"] == said["completedStreamed"]
    assert said["param"] == "logit_bias"
    assert said["broken"] == "deadline_exceeded"
    assert said["requestId"]
