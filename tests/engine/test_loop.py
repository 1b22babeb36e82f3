"""The engine on its own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from raydiff.engine import Engine, EngineLoop
from raydiff.errors import EngineError, Overloaded, UsageError
from raydiff.request import Completion, Decoding, Event
from tests.engine.conftest import MakeEngine


class Listener:
    """Collects a request's events and can be waited for."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.done = threading.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if event.completion is not None:
            self.done.set()

    def result(self) -> Completion:
        assert self.done.wait(60), "no completion came"
        completion = self.events[-1].completion
        assert completion is not None
        return completion


@pytest.fixture
def loop(engine: Engine) -> Iterator[EngineLoop]:
    loop = EngineLoop(engine)
    loop.start()
    yield loop
    loop.stop()
    assert not loop.alive()


def test_requests_from_many_threads_all_finish(loop: EngineLoop) -> None:
    expected = loop.engine.tokenizer
    listeners = [Listener() for _ in range(24)]

    def send(i: int) -> None:
        request = loop.engine.request(f"{'ab'[i % 2]}" * (i + 1), Decoding(max_tokens=20, steps=2))
        loop.submit(request, listeners[i])

    threads = [threading.Thread(target=send, args=(i,)) for i in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = [listener.result() for listener in listeners]
    assert [r.usage.completion_tokens for r in results] == [20] * 24
    assert all(expected.decode(r.token_ids) == r.text for r in results)
    assert loop.load() == 0


def test_a_cancelled_request_ends_as_cancelled(loop: EngineLoop) -> None:
    listener = Listener()
    request = loop.engine.request("hello", Decoding(max_tokens=64, steps=16))
    loop.submit(request, listener)
    loop.cancel(request.request_id)
    assert listener.result().finish_reason == "cancelled"
    assert loop.seconds_since_tick() == 0.0


def test_what_can_never_run_is_refused_at_once_and_all_of_it(loop: EngineLoop) -> None:
    good, bad = loop.engine.request("a"), loop.engine.request("x" * 100)
    listener = Listener()
    with pytest.raises(UsageError):
        loop.submit_all([good, bad], listener)
    assert loop.load() == 0
    assert not listener.events


def test_a_full_lane_refuses_a_whole_call(make_engine: MakeEngine) -> None:
    loop = EngineLoop(make_engine(max_rows=1, max_queued=2))
    requests = [loop.engine.request("a", lane="batch") for _ in range(5)]
    loop.submit_all(requests[:3], Listener())
    with pytest.raises(Overloaded):
        loop.submit_all(requests[3:], Listener())
    loop.submit(loop.engine.request("a", lane="interactive"), Listener())
    assert loop.load() == 4
    loop.start()
    loop.stop()


def test_a_listener_that_fails_does_not_stop_the_others(loop: EngineLoop) -> None:
    def broken(event: Event) -> None:
        raise ValueError("gone")

    loop.submit(loop.engine.request("a"), broken)
    listener = Listener()
    loop.submit(loop.engine.request("b"), listener)
    assert listener.result().finish_reason == "length"


def test_when_the_engine_dies_every_request_hears_of_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> list[Event]:
        raise RuntimeError("device lost")

    monkeypatch.setattr(engine, "step", broken)
    loop = EngineLoop(engine)
    listener = Listener()
    loop.submit(engine.request("a"), listener)
    loop.start()
    done = listener.result()
    assert done.finish_reason == "error"
    assert "device lost" in (done.error or "")
    with pytest.raises(EngineError, match="device lost"):
        loop.submit(engine.request("b"), listener)


def test_stopping_ends_what_is_unfinished(engine: Engine) -> None:
    loop = EngineLoop(engine)
    listener = Listener()
    loop.submit(engine.request("a", Decoding(max_tokens=64, steps=16)), listener)
    loop.start()
    loop.stop()
    assert listener.done.is_set()
    with pytest.raises(EngineError):
        loop.submit(engine.request("b"), listener)


def test_what_the_loop_admits_the_engine_admits(make_engine: MakeEngine) -> None:
    """A burst up to the limit is served; none of it turns into an error later."""
    loop = EngineLoop(make_engine(max_rows=1, max_queued=2))
    listeners = [Listener() for _ in range(3)]
    loop.start()
    for listener in listeners:
        loop.submit(loop.engine.request("a", Decoding(max_tokens=4), lane="batch"), listener)
    assert {listener.result().finish_reason for listener in listeners} == {"length"}
    loop.stop()
    burst = EngineLoop(make_engine(max_rows=1, max_queued=2))
    together = [burst.engine.request("a", Decoding(max_tokens=4), lane="batch") for _ in range(3)]
    heard = Listener()
    burst.submit_all(together, heard)
    burst.start()
    while burst.load():
        time.sleep(0.01)
    burst.stop()
    reasons = [e.completion.finish_reason for e in heard.events if e.completion]
    assert reasons == ["length"] * 3
