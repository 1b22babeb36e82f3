"""The load of a soak, the memory of the app's processes, and what is left when it is over."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter, defaultdict
from pathlib import Path

import httpx

from raydiff.client import Client
from raydiff.config import AppSettings, ModelSettings, ServeSettings
from raydiff.launch import running_app

from ...corpus.commands import command
from ...processes import descendants

MODEL = "soaked"
TITLES = {"gateway": "raydiff:gateway", "replica": f"raydiff:model-{MODEL}", "proxy": "ProxyActor"}
SAMPLE_S = 5.0
FLAT = 0.05
"""Growth of a role's memory over the last half of the load, above which it is no longer flat."""
QUIET_S = 10.0

Samples = dict[str, list[int]]


def run(seconds: float, clients: int, seed: int, model: str, report: Path | None) -> int:
    """Load an app of two gateways and two replicas; print what came of it."""
    settings = AppSettings(
        models=(
            ModelSettings(name=MODEL, model=model, num_cpus=0.1, min_replicas=2, max_replicas=2),
        ),
        gateways=2,
    )
    with running_app(settings, ServeSettings(port=0)) as app:
        samples, outcomes = asyncio.run(_soak(app.url, seconds, clients, seed))
        left = asyncio.run(_left(Client.connect(MODEL, app.app_name)))
    growth = {role: grown(values) for role, values in samples.items()}
    rate = sum(outcomes.values()) / seconds
    print(f"{sum(outcomes.values())} calls, {rate:.1f}/s: {dict(sorted(outcomes.items()))}")
    for role, values in samples.items():
        middle, last = values[len(values) // 2] / 2**20, values[-1] / 2**20
        print(f"{role:8s} {middle:7.1f} MiB half-way, {last:7.1f} at the end: {growth[role]:+.2%}")
    print(f"left in the replicas: {left}")
    if report is not None:
        report.write_text(json.dumps({"samples": samples, "outcomes": outcomes, "left": left}))
    wrong = [name for name in outcomes if name not in EXPECTED]
    good = not wrong and not any(sum(held.values()) for held in left)
    good = good and all(growth[role] <= FLAT for role in samples)
    print("ok" if good else f"FAILED {wrong}")
    return 0 if good else 1


def grown(values: list[int]) -> float:
    """By how much the last of the second half lies above its first, each a mean over a tenth."""
    half = values[len(values) // 2 :]
    tenth = max(1, len(half) // 5)
    first, last = sum(half[:tenth]) / tenth, sum(half[-tenth:]) / tenth
    return last / first - 1


EXPECTED = {"done", "streamed", "left", "late"}


async def _soak(url: str, seconds: float, clients: int, seed: int) -> tuple[Samples, Counter[str]]:
    outcomes: Counter[str] = Counter()
    until_s = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
        callers = [
            asyncio.create_task(_caller(http, random.Random(f"{seed} {i}"), until_s, outcomes))
            for i in range(clients)
        ]
        samples: Samples = defaultdict(list)
        while time.monotonic() < until_s:
            for role, held in resident_bytes().items():
                samples[role].append(held)
            await asyncio.sleep(SAMPLE_S)
        await asyncio.gather(*callers)
    return samples, outcomes


async def _caller(
    http: httpx.AsyncClient, rng: random.Random, until_s: float, outcomes: Counter[str]
) -> None:
    """Calls one after another: whole answers, streams, some that it leaves, some with a deadline
    that is too early."""
    while time.monotonic() < until_s:
        way = rng.choices((_whole, _stream, _leave, _late), (4, 4, 1, 1))[0]
        body = {
            "model": MODEL,
            "prompt": [f"text {rng.random()}" for _ in range(rng.choice((1, 1, 1, 4)))],
            "max_tokens": rng.randrange(16, 97),
        }
        try:
            outcome = await way(http, rng, body)
        except httpx.HTTPError as error:
            outcome = type(error).__name__
        outcomes[outcome] += 1


async def _whole(http: httpx.AsyncClient, rng: random.Random, body: dict[str, object]) -> str:
    answer = await http.post("/v1/completions", json=body)
    return "done" if answer.status_code == 200 else str(answer.status_code)


async def _stream(http: httpx.AsyncClient, rng: random.Random, body: dict[str, object]) -> str:
    async with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
        text = "".join([part async for part in answer.aiter_text()])
    if answer.status_code != 200:
        return str(answer.status_code)
    return "streamed" if text.endswith("data: [DONE]\n\n") else "a stream that broke"


async def _leave(http: httpx.AsyncClient, rng: random.Random, body: dict[str, object]) -> str:
    """Go away in the middle, of a stream or before the answer."""
    asked = {**body, "max_tokens": 512, "stream": rng.random() < 0.5}
    try:
        async with asyncio.timeout(rng.uniform(0.05, 1.0)):
            await http.post("/v1/completions", json=asked)
    except TimeoutError:
        return "left"
    return "done"


async def _late(http: httpx.AsyncClient, rng: random.Random, body: dict[str, object]) -> str:
    headers = {"x-request-timeout-seconds": f"{rng.uniform(0.1, 0.5):.2f}"}
    asked = {**body, "max_tokens": 512}
    answer = await http.post("/v1/completions", json=asked, headers=headers)
    return {200: "done", 408: "late"}.get(answer.status_code, str(answer.status_code))


async def _left(client: Client) -> list[dict[str, int]]:
    """What replicas hold after the load, which ends within a tick of its callers' going away."""
    deadline_s = time.monotonic() + QUIET_S
    while True:
        held = [
            {name: replica[name] for name in ("requests", "held_bytes")}
            for replica in await client.describe(timeout_s=30)
        ]
        if not any(sum(one.values()) for one in held) or time.monotonic() > deadline_s:
            return held
        await asyncio.sleep(0.2)


def resident_bytes() -> dict[str, int]:
    """Memory of the app's processes, by role."""
    held: Counter[str] = Counter()
    for pid in descendants(os.getpid()):
        title = command(pid)
        for role, name in TITLES.items():
            if name in title:
                held[role] += _resident_bytes(pid)
    return dict(held)


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
