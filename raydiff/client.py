"""Calls the replicas of a running app through their Serve handle.

A call survives what a fleet does every day: queues that are full, replicas that die, restart,
move or hang. It is tried again, with jittered backoff, until its deadline. The same request gives
the same text wherever it runs, as long as its decoding carries a seed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from raydiff.config import APP_NAME, deployment_name
from raydiff.errors import ClusterError, DeadlineExceeded, RaydiffError
from raydiff.request import Completion, Event, GenerationRequest
from raydiff.retries import Attempts, RetryPolicy, Stuck
from raydiff.service_times import ServiceTimes

_GRACE_S = 1.0
"""The replica enforces the deadline first; the caller gives up this much later."""

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A replica's answer in place of a result: an error that is part of normal operation.

    It is returned, not raised, because Serve logs a traceback for whatever is raised.
    """

    error: RaydiffError


class Client:
    """Calls one model's replicas; light, picklable, safe to share among tasks of one loop."""

    def __init__(self, handle: DeploymentHandle, retry: RetryPolicy | None = None) -> None:
        self._handle = handle
        self._retry = retry or RetryPolicy()
        self._times = ServiceTimes()

    @classmethod
    def connect(
        cls, model: str, app_name: str = APP_NAME, retry: RetryPolicy | None = None
    ) -> Client:
        """The client of a model that a running app serves, from any process of its cluster.

        `model` is the served name; of a checkpoint's path, its last part.

        Raises:
            ClusterError: this process is in no cluster, or no such app or model runs there.
        """
        name = deployment_name(os.path.basename(model.rstrip("/")))
        if not ray.is_initialized():
            raise ClusterError("This process is not connected to a Ray cluster.")
        try:
            handle = serve.get_deployment_handle(name, app_name=app_name)
        except (RayServeException, KeyError, ValueError) as error:
            raise ClusterError(
                f"No application {app_name!r} serving model {model!r} runs on this cluster. "
                "Start one with `raydiff serve`."
            ) from error
        return cls(handle, retry)

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        """Complete all requests in one call to one replica; results in the same order.

        A request that fails alone has a Completion with `finish_reason` "error".

        Raises:
            DeadlineExceeded: `timeout_s` passed; what was running is cancelled.
            Overloaded: queues are full, if the policy does not retry that.
            ReplicaDied: replicas kept dying under this call.
            ClusterError: there are no replicas.
            EngineError: the replica failed.
        """
        attempts = Attempts(self._retry, timeout_s)
        while True:
            try:
                return await self._call_once(list(requests), attempts)
            except Exception as error:
                await attempts.wait_after(error)

    async def stream(self, request: GenerationRequest, *, timeout_s: float) -> AsyncIterator[Event]:
        """Yield committed text as it comes; the last event carries the Completion.

        Raises as `generate` does. After the first event nothing is tried again.
        """
        attempts = Attempts(self._retry, timeout_s)
        while True:
            started = False
            try:
                async with aclosing(self._stream_once(request, attempts)) as events:
                    async for event in events:
                        started = True
                        yield event
                return
            except Exception as error:
                if started:
                    raise attempts.as_raydiff(error) from error
                await attempts.wait_after(error)

    async def describe(self, *, timeout_s: float) -> list[dict[str, Any]]:
        """What each live replica says of itself; empty when the model is scaled to zero.

        Raises:
            ClusterError: a replica does not answer in time.
        """
        response = self._handle.broadcast("describe")
        try:
            return list(await response.results_async(timeout_s=timeout_s))
        except (RayError, RayServeException, TimeoutError) as error:
            raise ClusterError(f"{self._handle.deployment_name}: a replica fails.") from error

    async def _call_once(
        self, requests: list[GenerationRequest], attempts: Attempts
    ) -> list[Completion]:
        timeout_s = attempts.left_s()
        response = self._handle.generate.remote(requests, timeout_s)
        started_s = time.monotonic()
        try:
            answer = await _within(self._unless_stuck(response, attempts), timeout_s + _GRACE_S)
        except BaseException:
            response.cancel()
            raise
        if isinstance(answer, Refusal):
            raise answer.error
        self._times.add(time.monotonic() - started_s)
        return list(answer)

    async def _unless_stuck(self, response: Any, attempts: Attempts) -> Any:
        """The answer of a call.

        Raises:
            Stuck: it is so late that the replica is taken to be stuck.
        """
        floor_s = self._retry.stuck_floor_s
        if floor_s is None:
            return await response
        started_s = time.monotonic()
        answer = asyncio.ensure_future(_result(response))
        try:
            while not answer.done():
                await asyncio.wait({answer}, timeout=floor_s / _LOOKS)
                waited_s = time.monotonic() - started_s
                limit_s = self._times.patience_s(floor_s) * 2.0**attempts.stuck
                if waited_s > limit_s and not answer.done():
                    raise Stuck(await _replica_of(response), waited_s, self._times.longest_s)
            return answer.result()
        finally:
            answer.cancel()

    async def _stream_once(
        self, request: GenerationRequest, attempts: Attempts
    ) -> AsyncGenerator[Event, None]:
        handle = self._handle.options(stream=True)
        response = handle.stream.remote(request, attempts.left_s())
        done = False
        try:
            while not done:
                answer = await _within(anext(response), attempts.left_s() + _GRACE_S)
                if isinstance(answer, Refusal):
                    raise answer.error
                done = answer.completion is not None
                yield answer
        except StopAsyncIteration:
            raise ClusterError("The replica's stream ended before its completion.") from None
        finally:
            if not done:
                response.cancel()


_LOOKS = 4
"""How often in the shortest patience a call is looked at."""
_NAMING_S = 1.0


async def _result(response: Awaitable[Result]) -> Result:
    return await response


async def _replica_of(response: Any) -> str:
    """The actor that has the call, for the log."""
    try:
        async with asyncio.timeout(_NAMING_S):
            reference = await response._to_object_ref()
        return f"The replica with actor id {reference.task_id().actor_id().hex()}"
    except Exception:  # other transports than actor calls have no such reference
        return "A replica"


async def _within(awaitable: Awaitable[Result], timeout_s: float) -> Result:
    try:
        async with asyncio.timeout(timeout_s):
            return await awaitable
    except TimeoutError:
        raise DeadlineExceeded(f"No answer within {timeout_s - _GRACE_S:.3g} s.") from None
