"""The HTTP interface in front of a real engine, without Serve in between."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from raydiff.config import EngineSettings
from raydiff.openai.prompts import PromptReader
from raydiff.serve.api import TextApi
from raydiff.serve.bodies import THREAD_BYTES, TIMEOUT_HEADER
from raydiff.serve.replica import ReplicaCore
from raydiff.serve.served import ServedModel
from tests.serve.checkpoint import MAX_PROMPT_TOKENS
from tests.serve.conftest import MAX_BODY_BYTES, MODEL, FakeReplicas


def events_of(response: httpx.Response) -> list[Any]:
    """The JSON of each `data:` line. The last is [DONE], or an error and then nothing more."""
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    if lines[-1] != "[DONE]":
        assert set(json.loads(lines[-1])) == {"error"}
        return [json.loads(line) for line in lines]
    return [json.loads(line) for line in lines[:-1]]


def error_of(response: httpx.Response) -> dict[str, Any]:
    """OpenAI's error object, which every refusal has."""
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def test_a_completion_reports_usage_and_forwards(http: httpx.AsyncClient) -> None:
    response = await http.post(
        "/completions",
        json={"model": MODEL, "prompt": "abc", "max_tokens": 6, "diffusion": {"steps": 8}},
    )
    body = response.json()
    (choice,) = body["choices"]
    assert (body["object"], choice["index"], choice["finish_reason"]) == (
        "text_completion",
        0,
        "length",
    )
    assert len(choice["text"]) == 6
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    forwards = body["diffusion"]["forwards"]
    assert body["diffusion"]["tokens_per_forward"] == pytest.approx(6 / forwards, abs=1e-4)


async def test_a_list_of_prompts_is_one_choice_each_in_order(http: httpx.AsyncClient) -> None:
    prompts = [f"prompt {i}" for i in range(5)]
    many = (await http.post("/completions", json={"prompt": prompts, "seed": 1})).json()
    assert [c["index"] for c in many["choices"]] == [0, 1, 2, 3, 4]
    for prompt, choice in zip(prompts, many["choices"], strict=True):
        one = (await http.post("/completions", json={"prompt": prompt, "seed": 1})).json()
        assert choice["text"] == one["choices"][0]["text"]


async def test_token_ids_are_the_text_they_encode(
    http: httpx.AsyncClient, reader: PromptReader
) -> None:
    ids = reader.tokenizer.encode("some text")
    by_text = (await http.post("/completions", json={"prompt": "some text"})).json()
    by_ids = (await http.post("/completions", json={"prompt": ids})).json()
    assert by_ids["choices"] == by_text["choices"]
    assert by_ids["usage"] == by_text["usage"]


async def test_a_chat_answers_as_the_assistant(http: httpx.AsyncClient) -> None:
    messages = [{"role": "user", "content": "hello"}]
    body = (await http.post("/chat/completions", json={"messages": messages})).json()
    message = body["choices"][0]["message"]
    assert (body["object"], message["role"]) == ("chat.completion", "assistant")
    assert len(message["content"]) == body["usage"]["completion_tokens"]


async def test_streamed_chunks_spell_the_whole_answer(http: httpx.AsyncClient) -> None:
    body = {"prompt": ["one", "two"], "max_tokens": 40, "seed": 3}
    whole = (await http.post("/completions", json=body)).json()
    response = await http.post("/completions", json={**body, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    texts, reasons = ["", ""], [None, None]
    for event in events_of(response):
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["text"]
        reasons[choice["index"]] = choice["finish_reason"] or reasons[choice["index"]]
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert reasons == ["length", "length"]


async def test_a_streamed_chat_opens_with_the_role_and_closes_with_usage(
    http: httpx.AsyncClient,
) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    events = events_of(
        await http.post(
            "/chat/completions", json={**body, "stream_options": {"include_usage": True}}
        )
    )
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[-2]["diffusion"]["forwards"] > 0
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 16
    assert all(event["object"] == "chat.completion.chunk" for event in events)
    unasked = events_of(await http.post("/chat/completions", json=body))
    assert all(event["choices"] for event in unasked)


async def test_a_stop_string_never_shows(http: httpx.AsyncClient) -> None:
    plain = (await http.post("/completions", json={"prompt": "abc", "max_tokens": 40})).json()
    text = plain["choices"][0]["text"]
    stop = text[7:10]
    body = {"prompt": "abc", "max_tokens": 40, "stop": stop}
    stopped = (await http.post("/completions", json=body)).json()["choices"][0]
    assert stopped["text"] == text[: text.index(stop)]
    assert stopped["finish_reason"] == "stop"
    events = events_of(await http.post("/completions", json={**body, "stream": True}))
    assert "".join(event["choices"][0]["text"] for event in events) == stopped["text"]


async def test_models_are_listed_with_their_limits(http: httpx.AsyncClient) -> None:
    (model,) = (await http.get("/models")).json()["data"]
    assert (model["id"], model["object"]) == (MODEL, "model")
    assert model["max_prompt_tokens"] == MAX_PROMPT_TOKENS
    assert (await http.get(f"/models/{MODEL}")).json() == model
    assert (await http.get("/models/other")).status_code == 404


async def test_health_is_200_when_every_model_has_its_replicas(
    http: httpx.AsyncClient, core: ReplicaCore, reader: PromptReader
) -> None:
    healthy = await http.get("http://test/health")
    assert (healthy.status_code, healthy.json()["replicas"]) == (200, {MODEL: 1})
    lacking = ServedModel(
        name=MODEL, reader=reader, replicas=FakeReplicas(core), min_replicas=2, created=0
    )
    api = TextApi({MODEL: lacking}, request_timeout_s=60, max_body_bytes=MAX_BODY_BYTES)
    transport = httpx.ASGITransport(app=api.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get("/health")
    assert response.status_code == 503
    assert MODEL in error_of(response)["message"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"prompt": "x", "colour": 1}, 400, "colour"),
        ({"prompt": "x", "diffusion": {"steps": 0}}, 400, "diffusion.steps"),
        ({"prompt": "x", "diffusion": {"threshold": 2}}, 400, "diffusion.threshold"),
        ({"prompt": "x", "diffusion": {"steps": 17}}, 400, "diffusion.steps"),
        ({"prompt": "x", "max_tokens": 100_000}, 400, "max_tokens"),
        ({"prompt": [5, 100_000]}, 400, "prompt"),
        ({"prompt": [-1]}, 400, "prompt"),
        ({"prompt": "x", "model": "other"}, 404, "model"),
        ({"prompt": "x" * 1000}, 400, "prompt"),
    ],
)
async def test_a_refusal_names_the_field_streamed_or_not(
    http: httpx.AsyncClient, body: dict[str, Any], status: int, param: str
) -> None:
    for stream in (False, True):
        response = await http.post("/completions", json={**body, "stream": stream})
        assert (response.status_code, error_of(response)["param"]) == (status, param)


async def test_a_prompt_beyond_the_context_says_how_long_it_is(http: httpx.AsyncClient) -> None:
    response = await http.post("/completions", json={"prompt": "x" * 1000})
    error = error_of(response)
    assert error["code"] == "context_length_exceeded"
    assert "1002" in error["message"]
    assert str(MAX_PROMPT_TOKENS) in error["message"]


async def test_unknown_paths_and_methods_have_openais_error_body(http: httpx.AsyncClient) -> None:
    missing = await http.get("/nothing")
    assert (missing.status_code, error_of(missing)["code"]) == (404, "not_found")
    wrong = await http.get("/completions")
    assert (wrong.status_code, error_of(wrong)["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def test_a_body_that_is_no_json_is_400(http: httpx.AsyncClient) -> None:
    for raw in (b"", b"{", b"[]", b'{"prompt": "\\ud800"}'):
        response = await http.post("/completions", content=raw)
        assert response.status_code == 400
        assert "body" in error_of(response)["message"]


async def test_a_body_beyond_the_limit_is_413_whether_its_length_is_declared_or_not(
    http: httpx.AsyncClient,
) -> None:
    async def parts() -> Any:
        for _ in range(20):
            yield b"x" * (MAX_BODY_BYTES // 10)

    declared = await http.post("/completions", content=b"x" * (MAX_BODY_BYTES + 1))
    chunked = await http.post("/completions", content=parts())
    for response in (declared, chunked):
        assert (response.status_code, error_of(response)["code"]) == (413, "body_too_large")


async def test_a_long_text_is_read_beside_the_event_loop(http: httpx.AsyncClient) -> None:
    """Such a text exceeds the context: what shows is that it is tokenised and refused."""
    response = await http.post("/completions", json={"prompt": "word " * THREAD_BYTES})
    assert response.status_code == 400
    assert error_of(response)["code"] == "context_length_exceeded"


async def test_a_missed_deadline_is_408(http: httpx.AsyncClient, core: ReplicaCore) -> None:
    for stream in (False, True):
        response = await http.post(
            "/completions",
            json={"prompt": ["x"] * 64, "max_tokens": 1024, "stream": stream},
            headers={TIMEOUT_HEADER: "0.02"},
        )
        if stream and response.status_code == 200:
            assert events_of(response)[-1]["error"]["code"] == "deadline_exceeded"
        else:
            assert (response.status_code, error_of(response)["code"]) == (
                408,
                "deadline_exceeded",
            )


async def test_a_stream_that_breaks_ends_with_an_error_event(http: httpx.AsyncClient) -> None:
    body = {"prompt": "x", "max_tokens": 1024, "stream": True}
    response = await http.post("/completions", json=body, headers={TIMEOUT_HEADER: "0.6"})
    assert response.status_code == 200
    events = events_of(response)
    assert events[0]["choices"][0]["text"]
    assert events[-1]["error"]["code"] == "deadline_exceeded"


class TestSmallQueues:
    @pytest.fixture
    def engine_settings(self) -> EngineSettings:
        return EngineSettings(threads=1, max_rows=1, max_queued=1)

    async def test_a_full_queue_is_429_with_retry_after(self, http: httpx.AsyncClient) -> None:
        body = {"prompt": "x", "max_tokens": 200}
        answers = await asyncio.gather(*(http.post("/completions", json=body) for _ in range(6)))
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) == {200, 429}
        refused = answers[statuses.index(429)]
        assert int(refused.headers["retry-after"]) >= 1
        assert error_of(refused)["code"] == "overloaded"
