"""Calls and streams on a running engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from raydiff.client import Refusal
from raydiff.config import EngineSettings, ModelSettings
from raydiff.errors import ClusterError, DeadlineExceeded, EngineError, Overloaded, UsageError
from raydiff.openai.prompts import PromptReader
from raydiff.request import Completion, Decoding, Event, GenerationRequest
from raydiff.serve.replica import ReplicaCore

LONG = 1024
STALL_S = ModelSettings().stall_s


@pytest.fixture
def ask(reader: PromptReader) -> Callable[..., GenerationRequest]:
    """Makes requests."""

    def make(name: str = "r", max_tokens: int = 8, **fields: int) -> GenerationRequest:
        return GenerationRequest(
            request_id=name,
            prompt_ids=reader.tokenizer.prompt_ids(f"text of {name}"),
            decoding=reader.spec.resolve(Decoding(max_tokens=max_tokens, **fields)),  # type: ignore[arg-type]
        )

    return make


Ask = Callable[..., GenerationRequest]


async def completions(core: ReplicaCore, *requests: GenerationRequest) -> list[Completion]:
    answer = await core.generate(requests, 60)
    assert isinstance(answer, list)
    return answer


async def until_there_are(count: int, core: ReplicaCore) -> None:
    """Wait until so many requests are in flight."""
    for _ in range(4000):
        if (await core.describe())["requests"] == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(await core.describe())


async def test_completions_come_in_the_order_of_the_requests(core: ReplicaCore, ask: Ask) -> None:
    requests = [ask(f"r{i}", max_tokens=1 + 7 * (i % 3)) for i in range(9)]
    done = await completions(core, *requests)
    assert [c.request_id for c in done] == [f"r{i}" for i in range(9)]
    assert [c.usage.completion_tokens for c in done] == [1, 8, 15] * 3


async def test_an_empty_call_is_done_at_once(core: ReplicaCore) -> None:
    assert await completions(core) == []


async def test_the_same_ids_may_be_in_flight_twice(core: ReplicaCore, ask: Ask) -> None:
    twice = await asyncio.gather(completions(core, ask("a")), completions(core, ask("a")))
    assert [c.request_id for (c,) in twice] == ["a", "a"]


async def test_a_request_that_can_never_run_fails_alone(core: ReplicaCore, ask: Ask) -> None:
    too_long = replace(ask("long"), prompt_ids=(5,) * 1000)
    good, bad, also_good = await completions(core, ask("a"), too_long, ask("b"))
    assert (good.finish_reason, also_good.finish_reason) == ("length", "length")
    assert bad.finish_reason == "error"
    assert bad.request_id == "long"
    assert "PromptTooLong" in (bad.error or "")


async def test_a_stream_spells_the_text_of_the_call(core: ReplicaCore, ask: Ask) -> None:
    request = ask("a", max_tokens=64, seed=1)
    (whole,) = await completions(core, request)
    events = [event async for event in core.stream(request, 60)]
    assert all(isinstance(event, Event) for event in events)
    assert "".join(event.text for event in events if isinstance(event, Event)) == whole.text
    assert len(events) > 1
    last = events[-1]
    assert isinstance(last, Event)
    assert last.completion is not None
    assert last.completion.request_id == "a"


async def test_what_a_slow_reader_missed_comes_merged(core: ReplicaCore, ask: Ask) -> None:
    request = ask("a", max_tokens=64, seed=1)
    (whole,) = await completions(core, request)
    stream = core.stream(request, 60)
    events = [await anext(stream)]
    await until_there_are(0, core)
    events += [event async for event in stream]
    assert len(events) <= 3
    assert "".join(event.text for event in events if isinstance(event, Event)) == whole.text


async def test_cancelling_a_call_frees_its_rows(core: ReplicaCore, ask: Ask) -> None:
    call = asyncio.create_task(core.generate([ask(f"r{i}", LONG) for i in range(8)], 60))
    await until_there_are(8, core)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until_there_are(0, core)


async def test_closing_a_stream_frees_its_row(core: ReplicaCore, ask: Ask) -> None:
    stream = core.stream(ask("a", LONG), 60)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    await until_there_are(0, core)


async def test_a_deadline_ends_the_call_and_frees_its_rows(core: ReplicaCore, ask: Ask) -> None:
    answer = await core.generate([ask("a", LONG)], 0.05)
    assert isinstance(answer, Refusal)
    assert isinstance(answer.error, DeadlineExceeded)
    (event,) = [e async for e in core.stream(ask("b", LONG), 0.0)]
    assert isinstance(event, Refusal)
    await until_there_are(0, core)


async def test_a_stream_that_can_never_run_is_refused(core: ReplicaCore, ask: Ask) -> None:
    (event,) = [e async for e in core.stream(replace(ask(), prompt_ids=()), 60)]
    assert isinstance(event, Refusal)
    assert isinstance(event.error, UsageError)


class TestSmallQueues:
    @pytest.fixture
    def engine_settings(self) -> EngineSettings:
        return EngineSettings(threads=1, max_rows=2, max_queued=2)

    async def test_a_call_beyond_the_queue_is_refused_whole(
        self, core: ReplicaCore, ask: Ask
    ) -> None:
        answer = await core.generate([ask(f"r{i}", LONG) for i in range(5)], 60)
        assert isinstance(answer, Refusal)
        assert isinstance(answer.error, Overloaded)
        assert answer.error.retry_after_s > 0
        assert (await core.describe())["requests"] == 0


class FakeEngineThread:
    """An engine's thread that does nothing, in a state that a test chooses."""

    def __init__(self, *, alive: bool, stalled_s: float) -> None:
        self._alive = alive
        self._stalled_s = stalled_s

    def submit_all(
        self, requests: list[GenerationRequest], on_event: Callable[[Event], None]
    ) -> None:
        raise EngineError("The engine has stopped.")

    def cancel(self, request_id: str) -> None:
        return None

    def stop(self, timeout_s: float = 5.0) -> None:
        return None

    def alive(self) -> bool:
        return self._alive

    def seconds_since_tick(self) -> float:
        return self._stalled_s

    def load(self) -> int:
        return 0

    def check(self, request: GenerationRequest) -> None:
        return None


def core_of(thread: FakeEngineThread, reader: PromptReader) -> ReplicaCore:
    return ReplicaCore(thread, reader.spec)


def test_a_working_replica_is_healthy(core: ReplicaCore, reader: PromptReader) -> None:
    core.check_health()
    core_of(FakeEngineThread(alive=True, stalled_s=STALL_S - 1), reader).check_health()


@pytest.mark.parametrize(("alive", "stalled_s"), [(False, 0.0), (True, STALL_S + 1)])
def test_a_dead_or_stalled_engine_is_unhealthy(
    reader: PromptReader, alive: bool, stalled_s: float
) -> None:
    core = core_of(FakeEngineThread(alive=alive, stalled_s=stalled_s), reader)
    with pytest.raises(EngineError):
        core.check_health()


async def test_a_stopped_engine_sends_the_call_to_another_replica(
    reader: PromptReader, ask: Ask
) -> None:
    core = core_of(FakeEngineThread(alive=False, stalled_s=0.0), reader)
    answer = await core.generate([ask()], 60)
    assert isinstance(answer, Refusal)
    assert isinstance(answer.error, ClusterError)
