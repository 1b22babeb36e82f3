"""A gateway that drains ends what runs and refuses what comes."""

from __future__ import annotations

import asyncio

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from raydiff.serve.draining import Drain


async def test_what_runs_ends_and_what_comes_gets_503_with_retry_after() -> None:
    entered, released = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        entered.set()
        await released.wait()
        return PlainTextResponse("done")

    drain = Drain(Starlette(routes=[Route("/slow", slow)]))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=drain), base_url="http://test"
    ) as client:
        running = asyncio.create_task(client.get("/slow"))
        await entered.wait()
        assert drain.begin() == 1
        refused = await client.get("/health")
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "5"
        assert refused.json()["error"]["code"] == "shutting_down"
        released.set()
        assert (await running).text == "done"
        assert drain.begin() == 0
