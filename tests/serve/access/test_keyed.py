"""The endpoints behind API keys."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from raydiff.errors import DeadlineExceeded, Overloaded
from tests.serve.access.conftest import TOKENS, Instant, Opened, write_keys

OPEN = {"/health", "/openapi.json", "/docs"}
BODY = {"model": "small", "prompt": "x", "max_tokens": 16}


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def test_without_a_valid_key_nothing_is_served(opened: Opened) -> None:
    """Whatever the documentation lists, but for what is open."""
    async with opened() as http:
        listed = (await http.get("/openapi.json")).json()["paths"]
        protected = [(m, p) for p in set(listed) - OPEN for m in listed[p]]
        assert len(protected) >= 6
        for method, path in protected:
            for header in (
                None,
                "Bearer",
                "Bearer ",
                "Bearer key-carl",
                "Basic key-alice",
                "key-bob",
            ):
                headers = {} if header is None else {"Authorization": header}
                response = await http.request(method, path, headers=headers, content=b"{")
                assert code_of(response) == (401, "invalid_api_key"), (method, path)
                assert response.headers["www-authenticate"] == "Bearer"
                assert "key-" not in response.text


async def test_health_and_the_documentation_are_open_and_say_nothing_of_keys(
    opened: Opened,
) -> None:
    async with opened() as http:
        for path in OPEN:
            response = await http.get(path)
            assert response.status_code == 200
            assert "alice" not in response.text
            assert "sha256:" not in response.text


async def test_a_key_sees_and_uses_only_its_models(opened: Opened) -> None:
    async with opened("key-bob") as http:
        (model,) = (await http.get("/v1/models")).json()["data"]
        assert model["id"] == "small"
        assert (await http.post("/v1/completions", json=BODY)).status_code == 200
        for name in ("large", "unknown"):
            refused = await http.post("/v1/completions", json={**BODY, "model": name})
            assert code_of(refused) == (404, "model_not_found")
            assert code_of(await http.get(f"/v1/models/{name}")) == (404, "model_not_found")
    async with opened("key-alice") as http:
        assert len((await http.get("/v1/models")).json()["data"]) == 2


async def test_requests_carry_the_keys_id_and_lane(opened: Opened, replicas: Instant) -> None:
    for name, lane in (("alice", "interactive"), ("bob", "batch")):
        async with opened(f"key-{name}") as http:
            await http.post("/v1/completions", json=BODY)
            await http.post("/v1/completions", json={**BODY, "stream": True})
        assert {(r.tenant, r.lane) for r in replicas.seen} == {(name, lane)}
        replicas.seen.clear()


async def test_a_removed_key_stops_working_without_a_restart(
    opened: Opened, keys_file: Path
) -> None:
    async with opened("key-alice", reload_s=0.01) as http:
        assert (await http.get("/v1/models")).status_code == 200
        write_keys(keys_file, {"id": "carl"})
        await asyncio.sleep(0.02)
        assert (await http.get("/v1/models")).status_code == 401
        fresh = await http.get("/v1/models", headers={"Authorization": "Bearer key-carl"})
        assert fresh.status_code == 200


async def test_the_openai_client_gets_its_own_errors(opened: Opened, keys_file: Path) -> None:
    write_keys(keys_file, {"id": "alice", "requests_per_minute": 1})

    def client(key: str) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            api_key=key, base_url="http://test/v1", http_client=opened(), max_retries=0
        )

    with pytest.raises(openai.AuthenticationError):
        await client("key-carl").models.list()
    ours = client("key-alice")
    with pytest.raises(openai.NotFoundError):
        await ours.completions.create(model="unknown", prompt="x")
    raw = await ours.completions.with_raw_response.create(**BODY)  # type: ignore[call-overload]
    assert raw.headers["x-ratelimit-limit-requests"] == "1"
    assert raw.headers["x-ratelimit-remaining-requests"] == "0"
    with pytest.raises(openai.RateLimitError) as caught:
        await ours.completions.create(model="small", prompt="x")
    assert int(caught.value.response.headers["retry-after"]) > 50


@pytest.mark.parametrize("stream", [False, True])
async def test_a_finished_request_costs_what_it_used(
    opened: Opened, keys_file: Path, stream: bool
) -> None:
    """Each may cost 3 + 16 tokens, and does cost 3 + 3: by estimate a single one would fit."""
    write_keys(keys_file, {"id": "alice", "tokens_per_minute": 30})
    async with opened("key-alice") as http:
        answers = [
            await http.post("/v1/completions", json={**BODY, "stream": stream}) for _ in range(4)
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    used = 3 + TOKENS
    assert answers[0].headers["x-ratelimit-remaining-tokens"] == str(30 - 19)
    assert answers[1].headers["x-ratelimit-remaining-tokens"] == str(30 - used - 19)


@pytest.mark.parametrize(
    ("error", "left"), [(Overloaded("full", 1.0), 30), (DeadlineExceeded("late"), 30 - 19)]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_was_refused_costs_no_tokens_and_what_took_too_long_does(
    opened: Opened,
    keys_file: Path,
    replicas: Instant,
    error: Exception,
    left: int,
    stream: bool,
) -> None:
    write_keys(keys_file, {"id": "alice", "tokens_per_minute": 30})
    async with opened("key-alice") as http:
        replicas.error = error
        await http.post("/v1/completions", json={**BODY, "stream": stream})
        replicas.error = None
        body: dict[str, Any] = {**BODY, "max_tokens": 1}
        response = await http.post("/v1/completions", json=body)
    assert response.headers["x-ratelimit-remaining-tokens"] == str(left - 4)


async def test_a_request_that_can_never_pass_is_400(opened: Opened, keys_file: Path) -> None:
    write_keys(keys_file, {"id": "alice", "tokens_per_minute": 30})
    async with opened("key-alice", max_rows=4, max_prompt_tokens=8) as http:
        for body in (
            {**BODY, "max_tokens": 28},
            {**BODY, "prompt": ["x"] * 2},
            {**BODY, "prompt": ["x"] * 5, "max_tokens": 1},
            {**BODY, "prompt": ["x"] * 2, "n": 3, "max_tokens": 1},
            {**BODY, "prompt": "x" * 7, "max_tokens": 1},
        ):
            response = await http.post("/v1/completions", json=body)
            assert response.status_code == 400, body
            assert "retry-after" not in response.headers


async def test_headers_that_are_too_long_are_431(opened: Opened) -> None:
    async with opened("key-alice", max_header_bytes=2000) as http:
        assert (await http.get("/health")).status_code == 200
        for response in (
            await http.get("/health", headers={"x-filler": "x" * 2000}),
            await http.get("/health?" + "x" * 2000),
        ):
            assert code_of(response) == (431, "headers_too_large")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_late_replica_does_not_make_the_deadlines_answer_late(
    opened: Opened, replicas: Instant, stream: bool
) -> None:
    replicas.delay_s = 30
    async with opened("key-alice") as http:
        response = await http.post(
            "/v1/completions",
            json={**BODY, "stream": stream},
            headers={"x-request-timeout-seconds": "0.1"},
        )
    assert '"code":"deadline_exceeded"' in response.text
    assert response.status_code == (200 if stream else 408)
