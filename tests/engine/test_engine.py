"""Joining, leaving, cancelling, memory and reports."""

from __future__ import annotations

import pytest
import torch

from raydiff.engine import Engine
from raydiff.engine.canvas import Canvas
from raydiff.engine.memory import Footprint
from raydiff.engine.plan import DenoisePlan, EncodePlan
from raydiff.engine.runner import Runner
from raydiff.errors import Overloaded, PromptTooLong, UsageError
from raydiff.request import Completion, Decoding
from tests.engine.conftest import ListRecorder, MakeEngine


def drain(engine: Engine) -> dict[str, Completion]:
    done = {}
    while engine.has_work():
        done |= {e.request_id: e.completion for e in engine.step() if e.completion}
    return done


def test_a_request_joins_between_forwards_and_shares_the_next(make_engine: MakeEngine) -> None:
    recorder = ListRecorder()
    engine = make_engine(recorder)
    engine.submit(engine.request("hello", Decoding(max_tokens=16)))
    for _ in range(5):
        engine.step()
    engine.submit(engine.request("world", Decoding(max_tokens=16)))
    drain(engine)
    denoise = [s.rows for s in recorder.steps if s.kind == "denoise"]
    assert max(denoise) == 2
    assert sum(denoise) == 32
    assert len(denoise) < 32


def test_a_finished_row_frees_its_slot_at_once(make_engine: MakeEngine) -> None:
    engine = make_engine(max_rows=1)
    first = engine.request("a", Decoding(max_tokens=16, threshold=0.0, ignore_eos=True))
    second = engine.request("b", Decoding(max_tokens=16))
    engine.submit(first)
    engine.submit(second)
    ended = [e.request_id for _ in range(2) for e in engine.step() if e.completion]
    assert ended == [first.request_id]
    engine.step()
    assert engine.canvases()[0].request_id == second.request_id
    assert engine.canvases()[0].first_forward_s is not None


def test_cancellation_frees_at_once_and_reports(make_engine: MakeEngine) -> None:
    engine = make_engine(max_rows=2)
    requests = [engine.request(t, Decoding(max_tokens=64)) for t in "abc"]
    for request in requests:
        engine.submit(request)
    for _ in range(3):
        engine.step()
    engine.cancel(requests[0].request_id)
    engine.cancel(requests[2].request_id)
    engine.cancel("unknown")
    done = drain(engine)
    assert done[requests[0].request_id].finish_reason == "cancelled"
    assert done[requests[2].request_id].finish_reason == "cancelled"
    assert done[requests[1].request_id].finish_reason == "length"
    assert engine.load_count() == 0


def test_interactive_requests_are_admitted_before_batch_ones(make_engine: MakeEngine) -> None:
    engine = make_engine(max_rows=1)
    late = engine.request("a", Decoding(max_tokens=4), lane="batch")
    soon = engine.request("b", Decoding(max_tokens=4), lane="interactive")
    engine.submit(late)
    engine.submit(soon)
    assert list(drain(engine)) == [soon.request_id, late.request_id]


def test_a_full_queue_is_overloaded_and_says_when_to_come_back(make_engine: MakeEngine) -> None:
    engine = make_engine(max_rows=1, max_queued=2)
    for _ in range(3):
        engine.submit(engine.request("a"))
    with pytest.raises(Overloaded) as caught:
        engine.submit(engine.request("a"))
    assert caught.value.retry_after_s > 0
    assert len(drain(engine)) == 3


def test_an_impossible_prompt_is_refused_before_it_is_queued(engine: Engine) -> None:
    with pytest.raises(PromptTooLong, match="at most 48 tokens"):
        engine.submit(engine.request("x" * 47))
    with pytest.raises(UsageError, match="at least one token"):
        engine.submit(engine.request(()))
    with pytest.raises(UsageError, match="token ids"):
        engine.submit(engine.request((1, 64)))
    assert not engine.has_work()


def test_the_same_id_twice_in_flight_is_refused(engine: Engine) -> None:
    request = engine.request("a")
    engine.submit(request)
    with pytest.raises(UsageError, match="in flight"):
        engine.submit(request)
    drain(engine)
    engine.submit(request)
    drain(engine)


def bytes_of_one(engine: Engine) -> int:
    """What one short request takes."""
    request = engine.request("a", Decoding(max_tokens=4))
    canvas = Canvas(request, engine.spec, engine.tokenizer)
    return Footprint(spec=engine.spec, dtype_bytes=4).request_bytes(canvas)


def test_requests_wait_until_their_bytes_fit(make_engine: MakeEngine) -> None:
    recorder = ListRecorder()
    one = make_engine(recorder, memory_budget_bytes=bytes_of_one(make_engine()))
    completions = one.generate(["a", "b", "c"], Decoding(max_tokens=4))
    assert len(completions) == 3
    assert max(s.rows for s in recorder.steps) == 1


def test_what_takes_more_bytes_than_there_are_is_refused_at_once(make_engine: MakeEngine) -> None:
    """It would wait for ever; the refusal says how many bytes there are and how many it takes."""
    needed = bytes_of_one(make_engine())
    engine = make_engine(memory_budget_bytes=needed - 1)
    with pytest.raises(UsageError, match=rf"at most {needed - 1} bytes.*got {needed}"):
        engine.submit(engine.request("a", Decoding(max_tokens=4)))
    assert not engine.has_work()


class Starved:
    """Stands in for a device that can take `rows` rows a forward and no more."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.refusals = 0

    def check(self, plan: DenoisePlan | EncodePlan) -> None:
        if len(plan.request_ids) > self.rows:
            self.refusals += 1
            raise torch.OutOfMemoryError("injected")


def starve(monkeypatch: pytest.MonkeyPatch, rows: int) -> Starved:
    device = Starved(rows)
    for name in ("_encode", "_hidden"):
        original = getattr(Runner, name)

        def limited(self: Runner, plan: DenoisePlan, original: object = original) -> object:
            device.check(plan)
            return original(self, plan)  # type: ignore[operator]

        monkeypatch.setattr(Runner, name, limited)
    return device


def test_out_of_memory_halves_the_budget_and_loses_nothing(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [f"{c}{c}" for c in "abcdefgh"]
    decoding = Decoding(max_tokens=24, temperature=0.7, seed=1)
    expected = make_engine().generate(prompts, decoding)
    device = starve(monkeypatch, rows=3)
    got = make_engine().generate(prompts, decoding)
    assert device.refusals > 0
    assert [c.token_ids for c in got] == [c.token_ids for c in expected]


def test_out_of_memory_alone_is_that_requests_error(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    starve(monkeypatch, rows=0)
    done = make_engine().generate(["a", "b"], Decoding(max_tokens=4))
    assert [c.finish_reason for c in done] == ["error", "error"]
    assert all("out of memory" in (c.error or "") for c in done)


def test_other_runtime_errors_are_not_taken_for_memory(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Runner, plan: EncodePlan) -> None:
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(Runner, "_encode", broken)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        make_engine().generate(["a"])


def test_a_failure_or_interrupt_leaves_an_engine_that_works(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    expected = make_engine().generate(["a"])[0].token_ids
    for error in (RuntimeError("shape mismatch"), KeyboardInterrupt()):

        def broken(self: Runner, plan: DenoisePlan, error: BaseException = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(Runner, "_hidden", broken)
            with pytest.raises(type(error)):
                engine.generate(["a", "b"])
        assert not engine.has_work()
        assert engine.generate(["a"])[0].token_ids == expected


def test_every_forward_and_request_is_recorded(make_engine: MakeEngine) -> None:
    recorder = ListRecorder()
    engine = make_engine(recorder)
    done = engine.generate(["hello", "b"], Decoding(max_tokens=20, ignore_eos=True, steps=4))
    kinds = [s.kind for s in recorder.steps]
    assert kinds.count("denoise") == done[0].usage.forwards == 8
    assert kinds.count("encode") == 2  # the prompts together, then both first blocks
    assert sum(s.committed_tokens for s in recorder.steps) == 40
    assert [r.usage.completion_tokens for r in recorder.requests] == [20, 20]
    assert all(r.total_s >= (r.first_commit_s or 0) >= r.queue_s >= 0 for r in recorder.requests)


def test_warm_up_runs_and_is_not_counted(make_engine: MakeEngine) -> None:
    recorder = ListRecorder()
    engine = make_engine(recorder)
    engine.warm_up()
    assert not recorder.steps
    assert not engine.has_work()


def test_many_more_requests_than_rows_all_finish(make_engine: MakeEngine) -> None:
    engine = make_engine(max_rows=4)
    prompts = [f"{'x' * (i % 30)}y" for i in range(40)]
    done = engine.generate(prompts, Decoding(max_tokens=18, steps=2))
    assert [c.usage.prompt_tokens for c in done] == [i % 30 + 3 for i in range(40)]
