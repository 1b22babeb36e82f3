"""From the engine's thread to asyncio: one call's completions, or one stream's events.

The engine calls back on its own thread. Each bridge belongs to one loop, wakes it as rarely as it
can, and never blocks either side.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from raydiff.request import Completion, Event, GenerationRequest


class EngineThread(Protocol):
    """What calls and streams need of `EngineLoop`."""

    def submit_all(
        self, requests: list[GenerationRequest], on_event: Callable[[Event], None]
    ) -> None:
        """Enqueue all requests or none; `on_event` is called on the engine's thread."""

    def cancel(self, request_id: str) -> None:
        """Free the request's slot at the next forward; unknown ids are ignored."""


class CallBridge:
    """Collects the completions of one call and wakes its loop once, at the end."""

    def __init__(self, request_ids: Sequence[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._request_ids = tuple(request_ids)
        self._completions: dict[str, Completion] = {}
        if not request_ids:
            self._future.set_result(None)

    def on_event(self, event: Event) -> None:
        """Keep a completion, drop the rest; from any thread."""
        if event.completion is None:
            return
        self._completions[event.request_id] = event.completion
        if len(self._completions) == len(self._request_ids):
            _call_soon(self._loop, self._wake)

    def unfinished(self) -> list[str]:
        """Ids of the requests without a completion."""
        return [name for name in self._request_ids if name not in self._completions]

    async def results(self) -> list[Completion]:
        """Wait for all completions; in the order of the requests."""
        await self._future
        return [self._completions[name] for name in self._request_ids]

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class StreamBridge:
    """Hands events to one consumer; what it has not taken yet is merged into one event."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._lock = threading.Lock()
        self._pending: Event | None = None

    def on_event(self, event: Event) -> None:
        """Add an event, from any thread."""
        with self._lock:
            waiting = self._pending
            self._pending = event if waiting is None else waiting.then(event)
        if waiting is None:
            _call_soon(self._loop, self._ready.set)

    async def events(self) -> AsyncIterator[Event]:
        """Yield events until the one with the completion."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            with self._lock:
                event, self._pending = self._pending, None
            if event is None:
                continue
            yield event
            if event.completion is not None:
                return


def renamed(requests: Sequence[GenerationRequest], call: int) -> list[GenerationRequest]:
    """The requests under ids unique to the call, so that a retry never meets its first try."""
    return [
        replace(request, request_id=f"{call}.{i}.{request.request_id}")
        for i, request in enumerate(requests)
    ]


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        # the loop is closed: the replica is shutting down and nobody waits any more
        return
