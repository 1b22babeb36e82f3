"""A real fleet of simulated replicas: from zero, up, and back to zero. Run by `tests/drills.sh`."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from raydiff.bench.fleet.host import Fleet, State, fleet_host
from raydiff.bench.serving.remote import Remote
from raydiff.config import AutoscalingSettings, EngineSettings, ModelSettings

MODEL = "simulated:4x16=1s,load=3s"
RULES = AutoscalingSettings(
    interactive_target_s=1.0, stats_interval_s=2.0, up_cooldown_s=4.0, down_after_s=10.0
)
WAIT_S = 120.0


def wait_for_zero(host: Remote[Fleet]) -> None:
    end_s = time.monotonic() + WAIT_S
    while True:
        state: State = host.ask("state")
        if state.running + state.starting == 0:
            return
        assert time.monotonic() < end_s, state
        time.sleep(1)


async def post(http: httpx.AsyncClient, number: int, timeout_s: float | None = None) -> int:
    headers = {} if timeout_s is None else {"x-request-timeout-seconds": str(timeout_s)}
    body = {"model": MODEL, "prompt": f"prompt {number}"}
    return (await http.post("/v1/completions", json=body, headers=headers)).status_code


async def several(url: str, count: int) -> list[int]:
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_S) as http:
        return await asyncio.gather(*(post(http, i) for i in range(count)))


async def hurried(url: str) -> int:
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_S) as http:
        return await post(http, 0, timeout_s=1.0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_model_at_zero_holds_requests_until_it_is_there_and_goes_back_to_zero() -> None:
    """Requests to a model without replicas wait for one, up to their own deadline: none fails
    because of the start, and one that may not wait is told so (408)."""
    model = ModelSettings(
        model=MODEL,
        num_cpus=0.1,
        min_replicas=0,
        max_replicas=4,
        engine=EngineSettings(max_rows=4),
        autoscaling=RULES,
    )
    with Remote(fleet_host, Fleet(model=model, cpus=6)) as host:
        host.receive()
        url = host.ask("app").url
        wait_for_zero(host)
        assert asyncio.run(hurried(url)) == 408
        assert asyncio.run(several(url, 40)) == [200] * 40
        wait_for_zero(host)
        assert asyncio.run(several(url, 3)) == [200] * 3
