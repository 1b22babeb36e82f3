"""Whatever is sent is answered: with 200, or with an error body that names what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter

import httpx

from raydiff.serve.api import TextApi
from tests.serve.random_requests import RandomRequest, random_request

COUNT = int(os.environ.get("RAYDIFF_RANDOM_REQUESTS", "400"))
"""The drill `random-requests` sends 10,000."""
AT_ONCE = 32
SEED = 5


async def test_requests_of_random_validity_get_200_or_a_4xx_that_names_the_field(
    shared_api: TextApi,
) -> None:
    rng = random.Random(SEED)
    requests = [random_request(rng) for _ in range(COUNT)]
    statuses: Counter[int] = Counter()
    turn = asyncio.Semaphore(AT_ONCE)
    transport = httpx.ASGITransport(app=shared_api.app(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:

        async def send(request: RandomRequest) -> None:
            async with turn:
                response = await client.post(
                    request.path, content=request.content, headers=_encoded(request.headers)
                )
            statuses[response.status_code] += 1
            check(request, response)

        await asyncio.gather(*map(send, requests))
    assert sum(statuses.values()) == COUNT
    assert statuses[200] > COUNT / 5
    assert statuses[400] > COUNT / 5
    print(dict(statuses))


def check(request: RandomRequest, response: httpx.Response) -> None:
    """The answer is well formed."""
    context = f"{request} -> {response.status_code} {response.text[:500]}"
    assert response.headers["x-request-id"], context
    if response.status_code == 200:
        if response.headers["content-type"].startswith("text/event-stream"):
            assert response.text.endswith("data: [DONE]\n\n"), context
        return
    assert response.status_code in (400, 404, 408, 413), context
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}, context
    assert error["type"] in ("invalid_request_error", "timeout_error"), context
    named = error["param"] is not None and error["param"] in error["message"]
    about_body = error["message"].startswith("body: ") or response.status_code == 408
    assert named or about_body, context
    json.dumps(error, ensure_ascii=False).encode()


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
