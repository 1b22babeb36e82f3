"""Open and closed loops of requests, and what came of each request.

A request of an open loop is timed from when it was due, not from when it was sent: a generator or
a server that falls behind cannot hide the wait (coordinated omission).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from raydiff.request import Lane

Tokens = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request: the same prompts as texts, for HTTP, and as tokens."""

    index: int
    """Its number within the load."""
    texts: tuple[str, ...]
    prompts: tuple[Tokens, ...]


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one process generates."""

    asks: tuple[Ask, ...]
    clients: int = 0
    """Of a closed loop."""
    due_s: tuple[float, ...] = ()
    """Of an open loop: seconds after `begin_s` at which each request is due."""
    begin_s: float = 0.0
    """Monotonic time, alike in all processes of a machine."""
    stream: bool = False
    output_tokens: int | None = None
    lane: Lane = "interactive"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a caller has to say of one request."""

    status: int
    """200, another status of HTTP, or 0 when there was none."""
    tokens: int = 0
    """Output tokens of all its prompts."""
    first_s: float | None = None
    """Monotonic time of the first committed text, of streams."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one request went; monotonic times."""

    index: int
    prompts: int
    due_s: float
    """When it should have been sent; in a closed loop when it was."""
    sent_s: float
    first_s: float | None
    done_s: float
    status: int
    tokens: int


class Caller(Protocol):
    """A way to the model."""

    async def ask(self, ask: Ask, load: Load) -> Answer:
        """Send one request and wait for all of its answer. What fails is a status."""

    async def close(self) -> None:
        """Let go of connections."""


async def generate_load(caller: Caller, load: Load) -> list[Outcome]:
    """Send all requests of the load, in its rhythm; how each went, by index."""
    outcomes = await (_open(caller, load) if load.due_s else _closed(caller, load))
    return sorted(outcomes, key=lambda outcome: outcome.index)


async def _closed(caller: Caller, load: Load) -> list[Outcome]:
    """Each client sends its next request when its last one is answered."""
    waiting = iter(load.asks)

    async def client() -> list[Outcome]:
        return [await _timed(caller, load, ask, None) for ask in waiting]

    await _sleep_until(load.begin_s)
    clients = await asyncio.gather(*(client() for _ in range(load.clients)))
    return [outcome for outcomes in clients for outcome in outcomes]


async def _open(caller: Caller, load: Load) -> list[Outcome]:
    """Requests are sent when they are due, however many are in flight."""
    tasks: list[asyncio.Task[Outcome]] = []
    for ask, due_s in zip(load.asks, load.due_s, strict=True):
        await _sleep_until(load.begin_s + due_s)
        tasks.append(asyncio.create_task(_timed(caller, load, ask, load.begin_s + due_s)))
    return list(await asyncio.gather(*tasks))


async def _timed(caller: Caller, load: Load, ask: Ask, due_s: float | None) -> Outcome:
    sent_s = time.monotonic()
    answer = await caller.ask(ask, load)
    return Outcome(
        index=ask.index,
        prompts=len(ask.prompts),
        due_s=sent_s if due_s is None else due_s,
        sent_s=sent_s,
        first_s=answer.first_s,
        done_s=time.monotonic(),
        status=answer.status,
        tokens=answer.tokens,
    )


async def _sleep_until(moment_s: float) -> None:
    left_s = moment_s - time.monotonic()
    if left_s > 0:
        await asyncio.sleep(left_s)


def make_asks(
    texts: Sequence[str], prompts: Sequence[Tokens], requests: int, per_request: int
) -> tuple[Ask, ...]:
    """Requests of `per_request` documents each, over and over through them."""
    asks = []
    for index in range(requests):
        places = [(index * per_request + i) % len(texts) for i in range(per_request)]
        asks.append(
            Ask(
                index=index,
                texts=tuple(texts[p] for p in places),
                prompts=tuple(prompts[p] for p in places),
            )
        )
    return tuple(asks)


def split_load(load: Load, processes: int) -> list[Load]:
    """The load in equal parts; no part is empty, and together they keep its clients and times."""
    processes = max(1, min(processes, len(load.asks), load.clients or len(load.asks)))
    return [
        replace(
            load,
            asks=load.asks[i::processes],
            due_s=load.due_s[i::processes],
            clients=len(range(i, load.clients, processes)),
        )
        for i in range(processes)
    ]
