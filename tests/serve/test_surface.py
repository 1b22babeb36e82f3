"""What users of OpenAI-compatible servers expect of the answers."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from raydiff.families import load_spec
from raydiff.openai.prompts import PromptReader
from raydiff.openai.protocol import CompletionBody, parse_body
from raydiff.request import Lane
from raydiff.serve.access import Caller
from raydiff.serve.api import TextApi
from raydiff.serve.generation import lane_of
from raydiff.serve.replica import ReplicaCore
from raydiff.serve.request_ids import MAX_CHARACTERS
from raydiff.serve.served import ServedModel
from raydiff.text import Tokenizer
from tests.serve.conftest import MAX_BODY_BYTES, MODEL, FakeReplicas
from tests.serve.test_gateway import error_of, events_of

USER = [{"role": "user", "content": "hello"}]


async def answer(http: httpx.AsyncClient, path: str, **body: Any) -> Any:
    response = await http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def chunks(http: httpx.AsyncClient, path: str, **body: Any) -> list[Any]:
    response = await http.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    return events_of(response)


class TestChoices:
    async def test_the_first_of_n_choices_is_that_of_one(self, http: httpx.AsyncClient) -> None:
        asked = {"max_tokens": 16, "seed": 7, "temperature": 1.0}
        one = await answer(http, "/completions", prompt=["a", "b"], **asked)
        three = await answer(http, "/completions", prompt=["a", "b"], n=3, **asked)
        texts = [choice["text"] for choice in three["choices"]]
        assert [choice["index"] for choice in three["choices"]] == list(range(6))
        assert [texts[0], texts[3]] == [choice["text"] for choice in one["choices"]]
        assert len(set(texts)) == 6

    async def test_the_same_seed_gives_the_same_n_choices(self, http: httpx.AsyncClient) -> None:
        asked = {"messages": USER, "n": 3, "seed": 1, "temperature": 1.0}
        first = await answer(http, "/chat/completions", **asked)
        second = await answer(http, "/chat/completions", **asked)
        assert first["choices"] == second["choices"]

    async def test_without_a_seed_choices_differ(self, http: httpx.AsyncClient) -> None:
        body = await answer(http, "/completions", prompt="a", n=4, temperature=1.0, max_tokens=16)
        assert len({choice["text"] for choice in body["choices"]}) == 4

    async def test_the_prompt_of_n_choices_is_counted_once(self, http: httpx.AsyncClient) -> None:
        one = await answer(http, "/completions", prompt=["abc", "de"], max_tokens=4)
        two = await answer(http, "/completions", prompt=["abc", "de"], max_tokens=4, n=2)
        assert two["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
        assert two["usage"]["completion_tokens"] == 16
        options = {"include_usage": True}
        last = (
            await chunks(
                http,
                "/completions",
                prompt=["abc", "de"],
                max_tokens=4,
                n=2,
                stream_options=options,
            )
        )[-1]
        assert last["usage"] == two["usage"]

    async def test_echo_puts_the_prompt_before_each_text(
        self, http: httpx.AsyncClient, reader: PromptReader
    ) -> None:
        asked: dict[str, Any] = {"max_tokens": 6, "seed": 1, "n": 2}
        prompts = ["abc", reader.tokenizer.encode("de")]
        for prompt, text in zip(prompts, ("abc", "de"), strict=True):
            plain = await answer(http, "/completions", prompt=prompt, **asked)
            echoed = await answer(http, "/completions", prompt=prompt, echo=True, **asked)
            expected = [text + choice["text"] for choice in plain["choices"]]
            assert [choice["text"] for choice in echoed["choices"]] == expected
            texts = ["", ""]
            for chunk in await chunks(http, "/completions", prompt=prompt, echo=True, **asked):
                (choice,) = chunk["choices"]
                texts[choice["index"]] += choice["text"]
            assert texts == expected


class TestLogprobs:
    async def test_of_a_chat_are_those_of_each_token(self, http: httpx.AsyncClient) -> None:
        asked = {"messages": USER, "max_tokens": 20, "logprobs": True, "top_logprobs": 3}
        (choice,) = (await answer(http, "/chat/completions", **asked))["choices"]
        content = choice["logprobs"]["content"]
        assert "".join(item["token"] for item in content) == choice["message"]["content"]
        for item in content:
            assert bytes(item["bytes"]).decode() == item["token"]
            assert item["logprob"] <= 0
            assert len(item["top_logprobs"]) == 3
            values = [top["logprob"] for top in item["top_logprobs"]]
            assert values == sorted(values, reverse=True)
            assert {"token": item["token"], "logprob": item["logprob"], "bytes": item["bytes"]} in (
                item["top_logprobs"]
            )  # the tiny model takes the likeliest
        streamed: list[Any] = []
        for chunk in await chunks(http, "/chat/completions", **asked):
            streamed += (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
        assert streamed == content

    async def test_of_a_completion_have_offsets_into_its_text(
        self, http: httpx.AsyncClient
    ) -> None:
        asked = {"prompt": ["abc", "de"], "max_tokens": 20, "logprobs": 2}
        whole = (await answer(http, "/completions", **asked))["choices"]
        for choice in whole:
            logprobs = choice["logprobs"]
            assert "".join(logprobs["tokens"]) == choice["text"]
            for token, offset, top, own in zip(
                logprobs["tokens"],
                logprobs["text_offset"],
                logprobs["top_logprobs"],
                logprobs["token_logprobs"],
                strict=True,
            ):
                assert choice["text"].startswith(token, offset)
                assert top[token] == own
                assert 2 <= len(top) <= 3
        streamed: list[dict[str, list[Any]]] = [{}, {}]
        for chunk in await chunks(http, "/completions", **asked):
            (choice,) = chunk["choices"]
            for name, values in (choice["logprobs"] or {}).items():
                streamed[choice["index"]].setdefault(name, []).extend(values)
        assert streamed == [choice["logprobs"] for choice in whole]

    async def test_are_null_where_nobody_asks(self, http: httpx.AsyncClient) -> None:
        body = await answer(http, "/completions", prompt="a", max_tokens=4)
        assert body["choices"][0]["logprobs"] is None


class TestStreams:
    async def test_usage_so_far_stands_in_every_chunk_where_asked(
        self, http: httpx.AsyncClient
    ) -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        events = await chunks(
            http, "/completions", prompt="abc", max_tokens=40, stream_options=options
        )
        counts = [event["usage"]["completion_tokens"] for event in events]
        assert counts == sorted(counts)
        assert (counts[0] > 0, counts[-1], len(set(counts)) > 2) == (True, 40, True)
        assert {event["usage"]["prompt_tokens"] for event in events} == {5}

    async def test_usage_so_far_needs_no_closing_chunk(self, http: httpx.AsyncClient) -> None:
        options = {"continuous_usage_stats": True}
        events = await chunks(http, "/completions", prompt="abc", stream_options=options)
        assert all(event["choices"] and event["usage"] for event in events)

    async def test_include_usage_alone_leaves_it_null_until_the_end(
        self, http: httpx.AsyncClient
    ) -> None:
        events = await chunks(
            http, "/completions", prompt="abc", stream_options={"include_usage": True}
        )
        assert [event["usage"] for event in events[:-1]] == [None] * (len(events) - 1)

    @pytest.mark.parametrize("path", ["/completions", "/chat/completions"])
    async def test_diffusing_shows_the_whole_canvas_and_marks_the_final_text(
        self, http: httpx.AsyncClient, path: str
    ) -> None:
        asked: dict[str, Any] = {"max_tokens": 24, "seed": 3}
        asked["messages" if "chat" in path else "prompt"] = USER if "chat" in path else "abc"
        whole = (await answer(http, path, **asked))["choices"][0]
        final = whole["message"]["content"] if "chat" in path else whole["text"]
        events = await chunks(http, path, diffusing=True, **asked)
        canvases = [event for event in events if "diffusion" in event]
        texts = [
            choice["delta"].get("content", "") if "chat" in path else choice["text"]
            for choice in (event["choices"][0] for event in canvases)
        ]
        assert len(canvases) > 3
        assert [event["diffusion"]["final"] for event in canvases] == [False] * (
            len(canvases) - 1
        ) + [True]
        reasons = [event["choices"][0]["finish_reason"] for event in canvases]
        assert reasons == [None] * (len(canvases) - 1) + ["length"]
        assert texts[-1] == final
        assert len(set(texts)) > 3

    async def test_stop_strings_never_leak_though_one_begins_another_and_spans_blocks(
        self, http: httpx.AsyncClient
    ) -> None:
        asked: dict[str, Any] = {"prompt": "abc", "max_tokens": 40, "seed": 3}
        text = (await answer(http, "/completions", **asked))["choices"][0]["text"]
        across = text[14:19]  # blocks have 16 positions, and a token is a letter
        stops = [across, across[:3] + "#", across + text[19:22]]
        cut = text[: text.index(across)]
        whole = (await answer(http, "/completions", stop=stops, **asked))["choices"][0]
        assert (whole["text"], whole["finish_reason"]) == (cut, "stop")
        seen = ""
        for event in await chunks(http, "/completions", stop=stops, **asked):
            seen += event["choices"][0]["text"]
            assert cut.startswith(seen)
        assert seen == cut


class TestRequestIds:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_clients_own_id_comes_back_in_header_and_body(
        self, http: httpx.AsyncClient, stream: bool
    ) -> None:
        response = await http.post(
            "/completions",
            json={"prompt": "a", "stream": stream},
            headers={"x-request-id": "mine/1"},
        )
        assert response.headers.get_list("x-request-id") == ["mine/1"]
        body = events_of(response)[0] if stream else response.json()
        assert body["id"] == "cmpl-mine/1"

    async def test_every_answer_has_an_id_errors_included(self, http: httpx.AsyncClient) -> None:
        answers = [
            await http.get("/models"),
            await http.get("/nothing"),
            await http.post("/completions", json={"prompt": 5}),
            await http.get("http://test/health"),
        ]
        ids = [response.headers["x-request-id"] for response in answers]
        assert len(set(ids)) == 4

    @pytest.mark.parametrize("wrong", ["a b", "", "x" * (MAX_CHARACTERS + 1), "ä"])
    async def test_an_id_that_could_harm_a_log_is_refused(
        self, http: httpx.AsyncClient, wrong: str
    ) -> None:
        header = {b"x-request-id": wrong.encode("latin-1")}
        response = await http.post("/completions", json={"prompt": "a"}, headers=header)
        assert (response.status_code, error_of(response)["param"]) == (400, "x-request-id")
        assert response.headers["x-request-id"] != wrong


class TestTokens:
    async def test_tokenize_and_detokenize_are_inverse(self, http: httpx.AsyncClient) -> None:
        text = "Grüße \U0001f600"
        asked = {"prompt": text, "add_special_tokens": False, "return_token_strs": True}
        tokens = await answer(http, "http://test/tokenize", **asked)
        assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"])
        back = await answer(http, "http://test/detokenize", tokens=tokens["tokens"])
        assert back == {"prompt": text}

    async def test_tokenize_counts_what_a_request_is_charged(self, http: httpx.AsyncClient) -> None:
        for path, prompt in (
            ("/completions", {"prompt": "some text"}),
            ("/chat/completions", {"messages": USER}),
        ):
            tokens = await answer(http, "http://test/tokenize", **prompt)
            usage = (await answer(http, path, **prompt))["usage"]
            assert tokens["count"] == usage["prompt_tokens"]

    @pytest.mark.parametrize(
        ("path", "body", "param"),
        [
            ("tokenize", {}, "prompt"),
            ("tokenize", {"prompt": "a", "messages": USER}, "prompt"),
            ("detokenize", {"tokens": [10**6]}, "tokens"),
            ("detokenize", {"tokens": ["a"]}, "tokens.0"),
            ("tokenize", {"prompt": "a", "colour": 1}, "colour"),
        ],
    )
    async def test_what_cannot_be_read_is_refused_by_name(
        self, http: httpx.AsyncClient, path: str, body: dict[str, Any], param: str
    ) -> None:
        response = await http.post(f"http://test/{path}", json=body)
        assert (response.status_code, error_of(response)["param"]) == (400, param)


class TestChats:
    async def test_a_chat_beyond_the_context_is_refused_or_loses_its_oldest_turns(
        self, http: httpx.AsyncClient
    ) -> None:
        turns = [
            {"role": role, "content": f"{role} says {i}"}
            for i in range(5)
            for role in ("user", "assistant")
        ]
        messages = [{"role": "system", "content": "Be kind."}, *turns, *USER]
        refused = await http.post("/chat/completions", json={"messages": messages})
        error = error_of(refused)
        assert (refused.status_code, error["param"], error["code"]) == (
            400,
            "messages",
            "context_length_exceeded",
        )
        asked = {"messages": messages, "truncation": "oldest_turns"}
        kept = await answer(http, "/chat/completions", **asked)
        short = await answer(http, "/chat/completions", messages=[messages[0], *turns[-2:], *USER])
        assert kept["usage"] == short["usage"]
        assert kept["choices"] == short["choices"]

    async def test_every_turn_stands_in_the_prompt_as_the_models_template_says(
        self, core: ReplicaCore
    ) -> None:
        name = "random:tiny-sdar"
        reader = PromptReader(spec=load_spec(name), tokenizer=Tokenizer.load(name))
        model = ServedModel(
            name="sdar", reader=reader, replicas=FakeReplicas(core), min_replicas=0, created=0
        )
        api = TextApi({"sdar": model}, request_timeout_s=60, max_body_bytes=MAX_BODY_BYTES)
        messages = [
            {"role": role, "content": text}
            for role, text in (("developer", "s"), ("user", "a"), ("assistant", "b"), ("user", "c"))
        ]
        transport = httpx.ASGITransport(app=api.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            tokens = await answer(client, "/tokenize", messages=messages)
            text = await answer(client, "/detokenize", tokens=tokens["tokens"])
        turns = re.findall(r"<\|im_start\|>(\w+)\n(\w?)", text["prompt"])
        expected = [("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c")]
        assert turns == [*expected, ("assistant", "")]

    async def test_service_tier_flex_is_batch_work(self, http: httpx.AsyncClient) -> None:
        plain = await answer(http, "/chat/completions", messages=USER)
        flex = await answer(http, "/chat/completions", messages=USER, service_tier="flex")
        assert (plain["service_tier"], flex["service_tier"]) == ("default", "flex")
        assert plain["choices"] == flex["choices"]


@pytest.mark.parametrize(
    ("tier", "bound", "batch_only", "lane"),
    [
        ("auto", None, False, "interactive"),
        ("default", None, False, "interactive"),
        ("flex", None, False, "batch"),
        ("default", "batch", False, "batch"),
        ("flex", "interactive", False, "interactive"),
        ("default", "interactive", True, "batch"),
    ],
)
def test_the_lane_is_that_of_the_model_then_of_the_key_then_of_the_service_tier(
    core: ReplicaCore,
    reader: PromptReader,
    tier: str,
    bound: Lane | None,
    batch_only: bool,
    lane: Lane,
) -> None:
    model = ServedModel(
        name=MODEL,
        reader=reader,
        replicas=FakeReplicas(core),
        min_replicas=0,
        created=0,
        batch_only=batch_only,
    )
    body = parse_body(CompletionBody, {"prompt": "a", "service_tier": tier})
    assert lane_of(body, Caller(lane=bound), model) == lane


class TestDocumentation:
    async def test_the_page_needs_no_other_host(self, http: httpx.AsyncClient) -> None:
        page = await http.get("http://test/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert re.findall(r'(?:src|href)="([^"]*)"', page.text) == ["openapi.json"]
        assert "script" not in page.text
        for word in ("/v1/chat/completions", "top_logprobs", "diffusion", "x-request-id"):
            assert word in page.text

    async def test_the_document_names_every_path(self, http: httpx.AsyncClient) -> None:
        document = (await http.get("http://test/openapi.json")).json()
        assert document["openapi"].startswith("3.1")
        for path in ("/v1/completions", "/v1/models/{name}", "/tokenize", "/health"):
            assert path in document["paths"]
        json.dumps(document)


async def test_a_model_says_what_it_is(http: httpx.AsyncClient) -> None:
    (model,) = (await http.get("/models")).json()["data"]
    assert model["id"] == MODEL
    assert model["simulated"] is False
