"""The replica: one engine on its own thread, called by many through asyncio.

torch loads with the model, in the replica's process: whoever only describes the application,
the command line for one, starts without it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Protocol

from raydiff.client import Refusal
from raydiff.config import ModelSettings
from raydiff.engine.counts import WorkCounter
from raydiff.errors import (
    ClusterError,
    DeadlineExceeded,
    EngineError,
    Overloaded,
    RaydiffError,
    UsageError,
)
from raydiff.metrics import MetricsRecorder, RayBackend, Recorder
from raydiff.request import Completion, Event, GenerationRequest, Usage
from raydiff.serve import autoscaling
from raydiff.serve.bridge import CallBridge, EngineThread, StreamBridge, renamed
from raydiff.serve.rows import RowAnswerer
from raydiff.simulated import is_simulated, simulated_model
from raydiff.spec import ModelSpec

if TYPE_CHECKING:
    from raydiff.engine import Engine


class RunningEngine(EngineThread, Protocol):
    """What a replica needs of `EngineLoop`."""

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop the thread."""

    def alive(self) -> bool:
        """Whether the thread runs and takes requests."""

    def seconds_since_tick(self) -> float:
        """Seconds without a finished forward while there is work."""

    def load(self) -> int:
        """Requests waiting or active."""

    def check(self, request: GenerationRequest) -> None:
        """Raise UsageError if a request can never run."""


class ReplicaCore:
    """Calls and streams on a running engine, without Ray."""

    def __init__(
        self, engine: RunningEngine, spec: ModelSpec, stall_s: float = ModelSettings().stall_s
    ) -> None:
        self._engine = engine
        self._spec = spec
        self._stall_s = stall_s
        self._calls = itertools.count()

    async def generate(
        self, requests: Sequence[GenerationRequest], timeout_s: float
    ) -> list[Completion] | Refusal:
        """Complete all requests, submitted at once; results in the same order.

        A request that the engine refuses or fails alone becomes a Completion with
        `finish_reason` "error". A full queue refuses the whole call and leaves nothing
        submitted. Cancelling the call cancels its requests.
        """
        submitted = renamed(requests, next(self._calls))
        failed, sound = self._checked(submitted)
        bridge = CallBridge([request.request_id for request in sound])
        try:
            self._engine.submit_all(sound, bridge.on_event)
            async with asyncio.timeout(timeout_s):
                done = await bridge.results()
        except Overloaded as error:
            return Refusal(error=error)
        except EngineError as error:
            return Refusal(error=self._unless_gone(error))
        except TimeoutError:
            return Refusal(error=_too_late(timeout_s))
        finally:
            self._cancel(bridge.unfinished())
        if not self._engine.alive() and any(c.finish_reason == "error" for c in done):
            return Refusal(error=_gone())
        by_id = {completion.request_id: completion for completion in (*failed, *done)}
        return [
            replace(by_id[ours.request_id], request_id=theirs.request_id)
            for ours, theirs in zip(submitted, requests, strict=True)
        ]

    async def stream(
        self, request: GenerationRequest, timeout_s: float
    ) -> AsyncIterator[Event | Refusal]:
        """Yield committed text as it comes; the last event carries the Completion.

        Closing or cancelling the stream cancels its request.
        """
        (submitted,) = renamed([replace(request, stream=True)], next(self._calls))
        bridge = StreamBridge()
        deadline = asyncio.get_running_loop().time() + timeout_s
        done = False
        try:
            self._engine.submit_all([submitted], bridge.on_event)
            events = bridge.events()
            while not done:
                async with asyncio.timeout_at(deadline):
                    event = await anext(events)
                done = event.completion is not None
                yield _as_asked(event, request.request_id)
        except EngineError as error:
            yield Refusal(error=self._unless_gone(error))
        except (Overloaded, UsageError) as error:
            yield Refusal(error=error)
        except TimeoutError:
            yield Refusal(error=_too_late(timeout_s))
        finally:
            if not done:
                self._cancel([submitted.request_id])

    async def describe(self) -> dict[str, Any]:
        """What this replica hosts and how busy it is."""
        return {
            "model": self._spec.name,
            "block_length": self._spec.block_length,
            "max_prompt_tokens": self._spec.max_prompt_tokens,
            "max_new_tokens": self._spec.max_new_tokens,
            "requests": self._engine.load(),
        }

    def check_health(self) -> None:
        """Raise when the engine's thread died or hangs.

        Raises:
            EngineError: it did.
        """
        if not self._engine.alive():
            raise EngineError("The engine's thread died.")
        stalled_s = self._engine.seconds_since_tick()
        if stalled_s > self._stall_s:
            raise EngineError(f"The engine has work but finished no forward for {stalled_s:.0f} s.")

    def _checked(
        self, requests: Sequence[GenerationRequest]
    ) -> tuple[list[Completion], list[GenerationRequest]]:
        """Split off the requests that can never run, as the completions they get."""
        failed: list[Completion] = []
        sound: list[GenerationRequest] = []
        for request in requests:
            try:
                self._engine.check(request)
            except UsageError as error:
                failed.append(_failed(request, error))
            else:
                sound.append(request)
        return failed, sound

    def _unless_gone(self, error: EngineError) -> RaydiffError:
        """The error, or one that sends the call to another replica."""
        return error if self._engine.alive() else _gone()

    def _cancel(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            self._engine.cancel(request_id)


class Replica(ReplicaCore):
    """The Serve deployment's class. Ready only when the model is loaded and warmed up."""

    def __init__(self, settings: ModelSettings) -> None:
        from ray.serve import metrics

        from raydiff.engine import EngineLoop

        backend = RayBackend(metrics)
        self._settings = settings
        self._name = uuid.uuid4().hex
        self._counter = WorkCounter(MetricsRecorder(backend, settings.served_name))
        engine = load_engine(settings, self._counter)
        self._thread = EngineLoop(engine)
        self._thread.start()
        super().__init__(self._thread, engine.spec, settings.stall_s)
        self._rows = RowAnswerer(tokenizer=engine.tokenizer, generator=self)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Take on settings that need no other engine, such as bounds of the replicas.

        Serve calls it first when the replica starts and then when a config changes those.
        """
        self._settings = ModelSettings.model_validate(user_config["settings"])
        self._stall_s = self._settings.stall_s

    async def answer_row(self, row: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the answer to one row of a dataset: see `RowAnswerer.answer`, also for the errors.

        It yields once because Ray Data's `ServeDeploymentProcessor` calls only async generators.
        """
        yield await self._rows.answer(row)

    async def describe(self) -> dict[str, Any]:
        """What this replica hosts, how much it takes on, and what it has done so far.

        `work` has the fields of `raydiff.engine.counts.Work`, summed up to `now_s` (Unix time).
        """
        settings = self._settings
        return {
            **await super().describe(),
            "replica": self._name,
            "max_rows": settings.engine.max_rows,
            "max_in_flight": settings.engine.max_in_flight,
            "max_replicas": settings.max_replicas,
            "target_calls": settings.target_ongoing_requests,
            "held_bytes": self._thread.engine.held_bytes,
            "work": asdict(self._counter.work),
            "now_s": time.time(),
        }

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Work in hand and speed, for `raydiff.serve.autoscaling`."""
        backlog = self._thread.backlog()
        return {
            autoscaling.INTERACTIVE: backlog.row_forwards.get("interactive", 0.0),
            autoscaling.BATCH: backlog.row_forwards.get("batch", 0.0),
            autoscaling.RATE: backlog.row_forwards_per_s,
            autoscaling.DONE: float(self._counter.work.rows),
        }

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is not None:
            thread.stop()


def load_engine(settings: ModelSettings, recorder: Recorder) -> Engine:
    """Load and warm up the engine that a replica hosts.

    Raises:
        ModelError: the checkpoint cannot be loaded or exceeds the device.
    """
    from raydiff.engine import Engine

    if is_simulated(settings.model):
        time.sleep(simulated_model(settings.model).load)
        return Engine.load(settings.model, settings=settings.engine, recorder=recorder)
    from raydiff.serve.fit import check_fits

    check_fits(settings)
    threads = settings.engine.threads or max(1, int(settings.num_cpus))
    engine = Engine.load(
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        settings=settings.engine.model_copy(update={"threads": threads}),
        recorder=recorder,
    )
    engine.warm_up()
    return engine


def _failed(request: GenerationRequest, error: RaydiffError) -> Completion:
    return Completion(
        request_id=request.request_id,
        text="",
        token_ids=(),
        finish_reason="error",
        usage=Usage(prompt_tokens=len(request.prompt_ids), completion_tokens=0, forwards=0),
        error=f"{type(error).__name__}: {error}",
    )


def _as_asked(event: Event, request_id: str) -> Event:
    completion = event.completion
    if completion is not None:
        completion = replace(completion, request_id=request_id)
    return replace(event, request_id=request_id, completion=completion)


def _gone() -> ClusterError:
    return ClusterError("The replica's engine has stopped.")


def _too_late(timeout_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(f"The request was not done within {timeout_s:.3g} s.")
