"""Two lanes on one engine: simulated models through the real scheduler, without waiting for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.engine.canvas import Canvas
from raydiff.engine.lanes import Lanes
from raydiff.engine.memory import Budget, Footprint
from raydiff.engine.scheduler import Scheduler
from raydiff.engine.state import State
from raydiff.engine.warmup import warm_up_requests
from raydiff.metrics import NullRecorder
from raydiff.models.denoiser import Denoiser
from raydiff.models.loading import load_denoiser
from raydiff.request import Completion, Decoding, GenerationRequest, Lane
from tests.engine.conftest import character_tokenizer
from tests.families.tiny import BY_NAME

MODEL = "simulated:8x4=0s,block=8"

Arrival = tuple[int, Lane, int, str]
"""Forwards before it, lane, tokens to write, tenant."""
ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(("interactive", "batch")),
        st.sampled_from((4, 8, 20)),
        st.sampled_from(("a", "b")),
    ),
    min_size=1,
    max_size=24,
)


def engine_of(**given: float) -> Engine:
    return Engine.load(MODEL, settings=EngineSettings(threads=1, **given))


def request(
    engine: Engine, name: str, lane: Lane, tokens: int = 8, tenant: str = ""
) -> GenerationRequest:
    decoding = Decoding(max_tokens=tokens, seed=7)
    made = engine.request((65, 66, len(name) % 50), decoding, request_id=name, lane=lane)
    return replace(made, tenant=tenant)


def drain(engine: Engine) -> dict[str, Completion]:
    done: dict[str, Completion] = {}
    while engine.has_work():
        done |= {e.request_id: e.completion for e in engine.step() if e.completion}
    return done


def play(engine: Engine, arrivals: list[Arrival]) -> dict[str, Completion]:
    done: dict[str, Completion] = {}
    for i, (forwards, lane, tokens, tenant) in enumerate(arrivals):
        for _ in range(forwards):
            done |= {e.request_id: e.completion for e in engine.step() if e.completion}
        engine.submit(request(engine, f"r{i}", lane, tokens, tenant))
    return done | drain(engine)


@settings(max_examples=30, deadline=None)
@given(arrivals=ARRIVALS, rows=st.integers(1, 4))
def test_interactive_work_waits_for_one_batch_forward_at_most(
    arrivals: list[Arrival], rows: int
) -> None:
    """By the trace, whatever arrives when: no forward is the batch lane's while an interactive
    request is ready, and none waits for more than the one that ran when it came."""
    engine = engine_of(max_rows=rows, batch_share=0)
    done = play(engine, arrivals)
    assert len(done) == len(arrivals)
    trace = engine.trace()
    assert [r for r in trace if r.interactive_ready and r.lane == "batch"] == []
    assert max((r.waited for r in trace if r.waited is not None), default=0) <= 1


@settings(max_examples=15, deadline=None)
@given(arrivals=ARRIVALS, rows=st.integers(1, 4))
def test_with_a_share_of_its_own_the_batch_lane_never_has_two_forwards_in_a_row(
    arrivals: list[Arrival], rows: int
) -> None:
    """Not while interactive requests are ready."""
    engine = engine_of(max_rows=rows, batch_share=0.9)
    assert len(play(engine, arrivals)) == len(arrivals)
    trace = engine.trace()
    for before, after in pairwise(trace):
        if before.lane == "batch" and after.lane == "batch" and before.interactive_ready:
            assert not after.interactive_ready


@settings(max_examples=15, deadline=None)
@given(arrivals=ARRIVALS, rows=st.integers(1, 4))
def test_lanes_and_tenants_change_no_token(arrivals: list[Arrival], rows: int) -> None:
    done = play(engine_of(max_rows=rows), arrivals)
    alone = engine_of()
    for i, (_, lane, tokens, tenant) in enumerate(arrivals):
        alone.submit(request(alone, f"r{i}", lane, tokens, tenant))
        assert drain(alone)[f"r{i}"].token_ids == done[f"r{i}"].token_ids


def test_an_interactive_request_joins_a_full_engine_at_once() -> None:
    """It needs no batch row to end before it."""
    engine = engine_of(max_rows=2)
    for i in range(6):
        engine.submit(request(engine, f"b{i}", "batch", tokens=40))
    for _ in range(3):
        engine.step()
    engine.submit(request(engine, "soon", "interactive"))
    engine.step()
    assert engine.trace()[-1].interactive_rows == 1
    assert next(iter(drain(engine))) == "soon"


def test_with_interactive_idle_batch_fills_every_row() -> None:
    engine = engine_of(max_rows=4, batch_yield_loss=0)
    engine.submit(request(engine, "i", "interactive"))
    for i in range(8):
        engine.submit(request(engine, f"b{i}", "batch"))
    drain(engine)
    idle = [r for r in engine.trace() if r.kind == "denoise" and not r.interactive_ready]
    assert {r.batch_rows for r in idle[:4]} == {4}


@pytest.mark.parametrize(
    ("seconds_of", "least", "most"), [(lambda rows: 1.0, 7, 7), (lambda rows: float(rows), 0, 0)]
)
def test_batch_rows_ride_along_where_forwards_cost_no_more_for_them(
    seconds_of: Callable[[int], float], least: int, most: int
) -> None:
    """On a device bound by memory all do, on one bound by arithmetic none."""
    engine = engine_of(max_rows=8)
    planned = Scheduler(
        EngineSettings(max_rows=8), Footprint(spec=engine.spec, dtype_bytes=1), Budget(2**40)
    )

    def step() -> None:
        plan, rows = planned.plan() or pytest.fail("there is work")
        for canvas in rows:
            if plan.kind == "encode":
                canvas.encoded()
        planned.ran(0.0, seconds_of(len(rows)))

    def add(name: str, lane: Lane) -> None:
        planned.add(Canvas(request(engine, name, lane), engine.spec, engine.tokenizer))

    for i in range(8):
        add(f"b{i}", "batch")
    for _ in range(4):
        step()
    add("i", "interactive")
    for _ in range(5):
        step()
    last = planned.trace.records()[-1]
    assert (last.lane, last.interactive_rows) == ("interactive", 1)
    assert least <= last.batch_rows <= most


def test_an_interactive_stream_without_end_leaves_the_batch_lane_its_share() -> None:
    lanes = Lanes(EngineSettings(batch_share=0.1))
    seconds = dict.fromkeys(("interactive", "batch"), 0.0)
    for _ in range(4000):
        lane = lanes.next(interactive=True, batch=True)
        seconds[lane] += 0.05
        lanes.ran(lane, 0.05, batch_waited=True)
    assert 0.05 < seconds["batch"] / sum(seconds.values()) < 0.15
    strict = Lanes(EngineSettings(batch_share=0))
    for _ in range(1000):
        assert strict.next(interactive=True, batch=True) == "interactive"
        strict.ran("interactive", 0.05, batch_waited=True)


@pytest.mark.parametrize("where", ["waiting", "running", "beside interactive"])
def test_a_cancelled_request_is_gone_before_the_next_forward(where: str) -> None:
    engine = engine_of(max_rows=1)
    engine.submit(request(engine, "first", "batch", tokens=40))
    engine.submit(request(engine, "second", "batch", tokens=40))
    engine.step()
    if where == "beside interactive":
        engine.submit(request(engine, "i", "interactive", tokens=40))
        engine.step()
    gone = "second" if where == "waiting" else "first"
    held = engine._scheduler.budget.held_by(gone)
    before = engine._scheduler.budget.held_bytes
    engine.cancel(gone)
    assert engine._scheduler.budget.held_bytes == before - held
    assert engine.backlog().requests["batch"] == 1
    assert {"first", "second"} - {gone} <= drain(engine).keys()


# Memory: interactive requests take it from batch ones.


@pytest.fixture(scope="module", params=["sdar", "fast-dllm"])
def blocks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Denoiser:
    """Models of causal blocks: rows keep what they wrote when they lose their cache."""
    folder = tmp_path_factory.mktemp(request.param)
    denoiser: Denoiser = load_denoiser(BY_NAME[request.param].save(folder), "cpu", "fp32")
    return denoiser


def narrow(denoiser: Denoiser, rows: int, **given: int) -> Engine:
    """An engine with bytes for so many rows of 40 tokens."""
    tokenizer = character_tokenizer(denoiser.spec)
    probe = Engine(denoiser, tokenizer)
    canvas = Canvas(own(probe, "x", "batch"), denoiser.spec, tokenizer)
    itemsize = denoiser.dtype.itemsize
    needed = Footprint(spec=denoiser.spec, dtype_bytes=itemsize).request_bytes(canvas)
    chosen = EngineSettings(memory_budget_bytes=rows * needed, prefix_cache_bytes=0, **given)
    return Engine(denoiser, tokenizer, chosen, NullRecorder())


def own(engine: Engine, name: str, lane: Lane) -> GenerationRequest:
    seed = sum(map(ord, name))
    decoding = Decoding(max_tokens=24, seed=seed, temperature=1.0, ignore_eos=True)
    prompt = [8 + (seed * k) % 40 for k in range(1, 12)]
    return engine.request(prompt, decoding, request_id=name, lane=lane)


@pytest.mark.parametrize("steps", range(0, 30, 6))
def test_a_row_set_aside_for_memory_goes_on_and_writes_the_same(
    blocks: Denoiser, steps: int
) -> None:
    alone = narrow(blocks, 1)
    alone.submit(own(alone, "batch", "batch"))
    expected = drain(alone)["batch"]
    engine = narrow(blocks, 1)
    engine.submit(own(engine, "batch", "batch"))
    done: dict[str, Completion] = {}
    for _ in range(steps):
        done |= {e.request_id: e.completion for e in engine.step() if e.completion}
    at_work = not done
    engine.submit(own(engine, "now", "interactive"))
    done |= drain(engine)
    assert done["batch"].token_ids == expected.token_ids
    assert done["batch"].usage == expected.usage  # no forward was done twice
    assert list(done) == (["now", "batch"] if at_work else ["batch", "now"])


def test_a_row_that_must_start_over_does_so_a_bounded_number_of_times(denoiser: Denoiser) -> None:
    """After that it keeps its place until it is done, and the interactive request waits."""
    engine = narrow(denoiser, 1, max_restarts=2)
    engine.submit(own(engine, "batch", "batch"))
    ended: list[str] = []

    def step() -> None:
        ended.extend(e.request_id for e in engine.step() if e.completion)

    for i in range(4):
        for _ in range(20):
            step()
        engine.submit(own(engine, f"i{i}", "interactive"))
        while f"i{i}" not in ended:
            step()
    assert ended == ["i0", "i1", "batch", "i2", "i3"]


def test_bytes_are_taken_from_the_row_with_the_least_to_lose(denoiser: Denoiser) -> None:
    engine = narrow(denoiser, 2)
    engine.submit(own(engine, "old", "batch"))
    for _ in range(20):
        engine.step()
    engine.submit(own(engine, "young", "batch"))
    for _ in range(3):
        engine.step()
    engine.submit(own(engine, "now", "interactive"))
    engine.step()
    states = {c.request_id: c.state for c in engine.canvases()}
    assert states["young"] is State.WAITING
    assert states["old"] is not State.WAITING
    assert drain(engine).keys() == {"old", "young", "now"}


def test_warming_up_is_no_interactive_work() -> None:
    """The scheduler would expect more of it, and keep batch forwards short for minutes."""
    lanes = {request.lane for request in warm_up_requests(engine_of().spec)}
    assert lanes == {"batch"}
