"""`raydiff bench serve`: many HTTP requests at a time against an app of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from raydiff.bench.report import circumstances
from raydiff.bench.scrape import Scrape, scrape, scrape_until
from raydiff.bench.workload import load_workload
from raydiff.config import (
    AppSettings,
    Dtype,
    EngineSettings,
    ModelSettings,
    ServeSettings,
    usable_cores,
)
from raydiff.errors import UsageError
from raydiff.launch import RunningApp, running_app
from raydiff.metrics import FORWARD_ROWS, FORWARDS, REQUEST_SECONDS
from raydiff.text import Tokenizer

TIMEOUT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class ServeBench:
    """Settings of one run."""

    input: str
    model: str = "summarizer"
    dtype: Dtype = "bf16"
    threads: int = 0
    documents: int = 256
    clients: int = 64


@dataclass(frozen=True)
class Answer:
    """How one request went."""

    status: int
    seconds: float
    tokens: int


def run_serve_bench(bench: ServeBench) -> dict[str, Any]:
    """Send one request per document, `clients` at a time, and return the report.

    Raises:
        ClusterError: no cluster can be used.
        ModelError, UsageError: the model or the input cannot be used.
    """
    engine = EngineSettings(threads=bench.threads or usable_cores())
    model = ModelSettings(model=bench.model, dtype=bench.dtype, engine=engine)
    workload = load_workload(bench.input, Tokenizer.load(bench.model), documents=bench.documents)
    app_settings = AppSettings(models=(model,))
    with running_app(app_settings, ServeSettings(port=0), reuse=False) as app:
        before = _primed(app, model.served_name, workload.texts[0])
        started = time.perf_counter()
        answers = asyncio.run(send_all(app.url, model.served_name, workload.texts, bench.clients))
        seconds = time.perf_counter() - started
        after = _settled(app.metrics_url, before, sum(a.status == 200 for a in answers))
    good = [answer for answer in answers if answer.status == 200]
    return {
        "bench": "serve",
        "circumstances": circumstances(),
        "model": bench.model,
        "dtype": bench.dtype,
        "threads": engine.threads,
        "workload": workload.describe(),
        "clients": bench.clients,
        "totals": {
            "requests": len(answers),
            "failed": len(answers) - len(good),
            "seconds": seconds,
            "requests_per_s": len(good) / seconds,
            "output_tokens_per_s": sum(answer.tokens for answer in good) / seconds,
            "rows_per_forward": rows_per_forward(before, after),
        },
        "latency": latency([answer.seconds for answer in good]),
    }


async def send_all(url: str, model: str, texts: Sequence[str], clients: int) -> list[Answer]:
    """Ask for a completion of every text, at most `clients` at a time.

    Raises:
        UsageError: httpx is not installed.
    """
    try:
        import httpx
    except ModuleNotFoundError as error:
        message = "bench serve needs the package httpx: pip install 'raydiff[bench]'."
        raise UsageError(message) from error
    free = asyncio.Semaphore(clients)
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits) as client:

        async def ask(text: str) -> Answer:
            async with free:
                started = time.perf_counter()
                body = {"model": model, "prompt": text}
                try:
                    response = await client.post("/v1/completions", json=body)
                except httpx.HTTPError:
                    return Answer(0, time.perf_counter() - started, 0)
                usage = response.json()["usage"] if response.status_code == 200 else {}
                tokens = usage.get("completion_tokens", 0)
                return Answer(response.status_code, time.perf_counter() - started, tokens)

        return await asyncio.gather(*(ask(text) for text in texts))


def rows_per_forward(before: Scrape, after: Scrape) -> float | None:
    """Mean rows of the denoising forwards between two scrapes; `None` if there were none."""
    rows, forwards = (
        after.total(metric.ray_name, kind="denoise") - before.total(metric.ray_name, kind="denoise")
        for metric in (FORWARD_ROWS, FORWARDS)
    )
    return rows / forwards if forwards else None


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """Percentiles of request seconds; empty without requests."""
    if not seconds:
        return {}
    cuts = quantiles([*seconds, *seconds], n=100, method="inclusive")
    return {"p50_s": cuts[49], "p90_s": cuts[89], "p99_s": cuts[98], "max_s": max(seconds)}


def _primed(app: RunningApp, model: str, text: str) -> Scrape:
    """A scrape that has all that came before it: one request, seen in the metrics."""
    before = scrape(app.metrics_url)
    asyncio.run(send_all(app.url, model, [text], clients=1))
    return _settled(app.metrics_url, before, 1)


def _settled(url: str, before: Scrape, requests: int) -> Scrape:
    name = f"{REQUEST_SECONDS.ray_name}_count"
    goal = before.total(name) + requests
    return scrape_until(url, lambda found: found.total(name) >= goal)
