"""What the client does about full queues, dying replicas, deadlines and cancellation."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.serve.exceptions import BackPressureError

from raydiff.client import Client, Refusal
from raydiff.errors import (
    ClusterError,
    DeadlineExceeded,
    EngineError,
    Overloaded,
    PromptTooLong,
    ReplicaDied,
)
from raydiff.request import Completion, Decoding, Event, GenerationRequest, Usage
from raydiff.retries import RetryPolicy
from raydiff.service_times import ServiceTimes

QUICK = RetryPolicy(first_backoff_s=0.001, max_backoff_s=0.002, max_deaths=3)
REQUEST = GenerationRequest(request_id="r", prompt_ids=(1,), decoding=Decoding())
USAGE = Usage(prompt_tokens=1, completion_tokens=1, forwards=1)
COMPLETION = Completion(
    request_id="r", text="ab", token_ids=(1,), finish_reason="stop", usage=USAGE
)
LAST = Event(request_id="r", text="b", completion=COMPLETION)
HANG = object()


def full(retry_after_s: float = 0.0) -> Refusal:
    return Refusal(error=Overloaded("full.", retry_after_s))


class FakeResponse:
    """One call's response: a list of answers, or an error, or nothing for ever."""

    def __init__(self, answers: Any) -> None:
        self._answers = iter(answers if isinstance(answers, list) else [answers])
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def __await__(self) -> Any:
        return self.__anext__().__await__()

    async def _to_object_ref(self) -> Any:
        actor = SimpleNamespace(hex=lambda: "feed")
        return SimpleNamespace(task_id=lambda: SimpleNamespace(actor_id=lambda: actor))

    async def __anext__(self) -> Any:
        try:
            answer = next(self._answers)
        except StopIteration:
            raise StopAsyncIteration from None
        if answer is HANG:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


class FakeHandle:
    """A Serve handle whose calls answer what a test lists, the last for ever."""

    deployment_name = "fake"

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.responses: list[FakeResponse] = []
        self.timeouts_s: list[float] = []
        self.generate = self.stream = self

    def options(self, *, stream: bool) -> FakeHandle:
        assert stream
        return self

    def remote(self, _: Any, timeout_s: float) -> FakeResponse:
        self.timeouts_s.append(timeout_s)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.responses.append(FakeResponse(answer))
        return self.responses[-1]


async def generate(handle: FakeHandle, policy: RetryPolicy = QUICK, timeout_s: float = 5) -> Any:
    return await Client(handle, policy).generate([REQUEST], timeout_s=timeout_s)  # type: ignore[arg-type]


def stream(handle: FakeHandle, timeout_s: float = 5) -> AsyncIterator[Event]:
    return Client(handle, QUICK).stream(REQUEST, timeout_s=timeout_s)  # type: ignore[arg-type]


def died() -> ActorDiedError:
    return ActorDiedError()


def task_error(cause: Exception) -> RayTaskError:
    return RayTaskError("generate", "traceback", cause)


async def test_a_full_queue_is_tried_again_until_there_is_room() -> None:
    handle = FakeHandle(full(), full(), [[COMPLETION]])
    assert await generate(handle) == [COMPLETION]
    assert len(handle.responses) == 3


async def test_a_full_queue_is_raised_at_once_where_the_caller_wants_that() -> None:
    handle = FakeHandle(full())
    with pytest.raises(Overloaded):
        await generate(handle, RetryPolicy(overloaded=False))
    assert len(handle.responses) == 1


async def test_a_queue_that_stays_full_is_overload_and_not_a_missed_deadline() -> None:
    with pytest.raises(Overloaded):
        await generate(FakeHandle(full()), timeout_s=0.05)


async def test_a_replicas_death_is_tried_again_elsewhere() -> None:
    handle = FakeHandle(died(), Refusal(error=ClusterError("stopped.")), [[COMPLETION]])
    assert await generate(handle) == [COMPLETION]


async def test_a_call_that_kills_every_replica_is_given_up() -> None:
    handle = FakeHandle(died())
    with pytest.raises(ReplicaDied):
        await generate(handle)
    assert len(handle.responses) == QUICK.max_deaths


async def test_a_caller_that_suspects_its_call_hears_of_the_first_death() -> None:
    handle = FakeHandle(died(), [[COMPLETION]])
    with pytest.raises(ReplicaDied):
        await generate(handle, replace(QUICK, max_deaths=1))
    assert len(handle.responses) == 1


STUCK = replace(QUICK, stuck_floor_s=0.05)


async def test_a_replica_that_does_not_answer_is_left_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is known to be stuck by what other calls took."""
    handle = FakeHandle([[COMPLETION]], HANG, [[COMPLETION]])
    client = Client(handle, STUCK)  # type: ignore[arg-type]  # has what is used of a handle
    for _ in range(2):
        assert await client.generate([REQUEST], timeout_s=5) == [COMPLETION]
    assert [response.cancelled for response in handle.responses] == [False, True, False]
    assert "actor id feed has not answered for" in caplog.text


async def test_slow_is_not_stuck_before_anything_was_measured() -> None:
    handle = FakeHandle(HANG)
    with pytest.raises(DeadlineExceeded):
        await generate(handle, STUCK, timeout_s=0.3)
    assert len(handle.responses) == 1


async def test_calls_that_all_take_long_are_not_stuck() -> None:
    times = ServiceTimes()
    times.add(12.0)
    assert times.patience_s(30.0) == 120.0
    for _ in range(64):
        times.add(0.1)
    assert times.patience_s(30.0) == 30.0


async def test_serves_own_backpressure_is_tried_again() -> None:
    handle = FakeHandle(BackPressureError(1, 1), [[COMPLETION]])
    assert await generate(handle) == [COMPLETION]


@pytest.mark.parametrize("cause", [PromptTooLong("long.", "prompt"), EngineError("broken.")])
async def test_an_error_of_ours_comes_through_as_it_is(cause: Exception) -> None:
    for answer in (task_error(cause), Refusal(error=cause)):  # type: ignore[arg-type]
        handle = FakeHandle(answer)
        with pytest.raises(type(cause)) as caught:
            await generate(handle)
        assert str(caught.value) == str(cause)
        assert len(handle.responses) == 1


async def test_an_unknown_failure_is_an_engine_error_that_tells_no_more_than_its_kind() -> None:
    with pytest.raises(EngineError) as caught:
        await generate(FakeHandle(task_error(KeyError("a prompt"))))
    assert str(caught.value) == "The replica failed: KeyError."


async def test_each_attempt_has_only_the_time_that_is_left() -> None:
    handle = FakeHandle(full(0.002), [[COMPLETION]])
    await generate(handle, timeout_s=5)
    first, second = handle.timeouts_s
    assert second < first <= 5


async def test_a_call_that_hangs_ends_at_the_deadline_and_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raydiff.client._GRACE_S", 0.01)
    handle = FakeHandle(HANG)
    with pytest.raises(DeadlineExceeded):
        await generate(handle, timeout_s=0.02)
    assert handle.responses[0].cancelled


async def test_cancelling_the_caller_cancels_the_replica() -> None:
    for work in (generate, lambda handle: anext(stream(handle))):
        handle = FakeHandle(HANG)
        task = asyncio.ensure_future(work(handle))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert handle.responses[0].cancelled


async def test_a_stream_yields_events_up_to_the_completion() -> None:
    first = Event(request_id="r", text="a")
    handle = FakeHandle([first, LAST])
    assert [event async for event in stream(handle)] == [first, LAST]
    assert not handle.responses[0].cancelled


async def test_a_stream_that_has_not_begun_is_tried_again() -> None:
    handle = FakeHandle(died(), full(), [LAST])
    assert [event async for event in stream(handle)] == [LAST]


async def test_a_stream_that_has_begun_is_not_tried_again() -> None:
    handle = FakeHandle([Event(request_id="r", text="a"), died()])
    with pytest.raises(ClusterError):
        [event async for event in stream(handle)]
    assert len(handle.responses) == 1


async def test_a_stream_must_end_with_its_completion() -> None:
    with pytest.raises(ClusterError, match="completion"):
        [event async for event in stream(FakeHandle([Event(request_id="r", text="a")]))]


async def test_leaving_a_stream_cancels_it() -> None:
    handle = FakeHandle([Event(request_id="r", text="a"), LAST])
    events = stream(handle)
    await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    assert handle.responses[0].cancelled


def test_without_a_cluster_there_is_no_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ClusterError, match="not connected"):
        Client.connect("summarizer")


def test_refusals_cross_processes_with_their_fields() -> None:
    error = pickle.loads(pickle.dumps(full(2.5))).error
    assert isinstance(error, Overloaded)
    assert (str(error), error.retry_after_s) == ("full.", 2.5)
