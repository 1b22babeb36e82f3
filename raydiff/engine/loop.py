"""EngineLoop: an engine on a thread of its own, with a thread-safe facade."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from raydiff.engine.engine import Engine
from raydiff.engine.trace import ForwardRecord
from raydiff.errors import EngineError
from raydiff.request import Backlog, Completion, Event, GenerationRequest, Usage

log = logging.getLogger(__name__)

OnEvent = Callable[[Event], None]


class EngineLoop:
    """Submissions and cancellations reach the engine between two forwards.

    `on_event` is called on the engine's thread and must not block.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._listeners: dict[str, OnEvent] = {}
        self._stopping = False
        self._failure: BaseException | None = None
        self._tick_s = time.monotonic()
        self._thread = threading.Thread(target=self._main, name="raydiff-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop after the forward in progress; what is unfinished ends as cancelled."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def alive(self) -> bool:
        """Whether the thread runs and takes requests."""
        refuses = self._stopping or self._failure is not None
        return self._thread.is_alive() and not refuses

    def load(self) -> int:
        """Requests submitted and not finished."""
        return len(self._listeners)

    def backlog(self) -> Backlog:
        """Work taken on and not done, and the rate it is done at; cheap, from any thread."""
        return self.engine.backlog()

    def trace(self) -> list[ForwardRecord]:
        """The last forwards, oldest first."""
        return self.engine.trace()

    def seconds_since_tick(self) -> float:
        """Seconds in which there was work and no forward finished; 0 when idle."""
        return time.monotonic() - self._tick_s if self._listeners else 0.0

    def submit(self, request: GenerationRequest, on_event: OnEvent) -> None:
        """Hand a request over.

        Raises:
            UsageError: it can never run.
            Overloaded: as many requests of its lane are in flight as may be.
            EngineError: the loop has stopped or died.
        """
        self.submit_all([request], on_event)

    def submit_all(self, requests: list[GenerationRequest], on_event: OnEvent) -> None:
        """Hand over all requests or, when one is refused, none."""
        with self._wake:
            self._check_free(requests)
        # on the caller's thread, so that a large call holds up no forward
        canvases = self.engine.accept(requests)
        with self._wake:
            self._check_free(requests)
            if not self._listeners:
                self._tick_s = time.monotonic()
            now_s = time.monotonic()
            for canvas in canvases:
                canvas.handed_over_s = now_s
                self._listeners[canvas.request_id] = on_event
                self._inbox.append(partial(self.engine.enqueue, canvas))
            self._wake.notify()

    def check(self, request: GenerationRequest) -> None:
        """See whether a request can ever run.

        Raises:
            UsageError: it cannot.
        """
        self.engine.check(request)

    def cancel(self, request_id: str) -> None:
        """End a request at the next tick; unknown ids are ignored."""
        with self._wake:
            self._inbox.append(partial(self.engine.cancel, request_id))
            self._wake.notify()

    def _check_free(self, requests: list[GenerationRequest]) -> None:
        if self._stopping or self._failure is not None:
            raise EngineError(f"The engine has stopped: {self._failure or 'shutting down'}.")
        taken = [r.request_id for r in requests if r.request_id in self._listeners]
        if taken:
            raise EngineError(f"request_id: {taken[0]!r} is in flight already.")

    def _main(self) -> None:
        try:
            while self._wait():
                self._drain_inbox()
                for event in self.engine.step() if self.engine.has_work() else ():
                    self._deliver(event)
                self._tick_s = time.monotonic()
            self._end_all("The engine is shutting down.")
        except BaseException as error:
            log.exception("The engine thread died")
            self._failure = error
            self._end_all(f"The engine failed: {error!r}")

    def _wait(self) -> bool:
        with self._wake:
            while not (self._stopping or self._inbox or self.engine.has_work()):
                self._wake.wait()
            return not self._stopping

    def _drain_inbox(self) -> None:
        with self._wake:
            actions, self._inbox = list(self._inbox), deque()
        for action in actions:
            action()

    def _deliver(self, event: Event) -> None:
        on_event = self._listeners.get(event.request_id)
        if event.completion is not None:
            self._forget(event.request_id)
        if on_event is None:
            return
        try:
            on_event(event)
        except Exception:  # a listener that went away must not stop the others
            log.exception("A listener failed")

    def _forget(self, request_id: str) -> None:
        with self._wake:
            self._listeners.pop(request_id, None)

    def _end_all(self, message: str) -> None:
        for request_id in list(self._listeners):
            self._deliver(_failed(request_id, message))


def _failed(request_id: str, message: str) -> Event:
    completion = Completion(
        request_id=request_id,
        text="",
        token_ids=(),
        finish_reason="error",
        usage=Usage(prompt_tokens=0, completion_tokens=0, forwards=0),
        error=message,
    )
    return Event(request_id=request_id, completion=completion)
