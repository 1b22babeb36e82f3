"""Which canvases the next forward advances. No model takes part."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from raydiff.config import EngineSettings
from raydiff.engine.canvas import Canvas
from raydiff.engine.extent import reserved_context
from raydiff.engine.memory import Budget, Footprint, context_bucket
from raydiff.engine.plan import DenoisePlan, EncodePlan
from raydiff.engine.scheduler import Scheduler
from raydiff.engine.state import State
from raydiff.models.denoiser import Denoiser
from raydiff.request import Decoding, GenerationRequest, Lane
from tests.engine.conftest import character_tokenizer

MakeCanvas = Callable[..., Canvas]


@pytest.fixture
def make_canvas(denoiser: Denoiser) -> MakeCanvas:
    def make(name: str, length: int = 10, lane: Lane = "batch", **decoding: int) -> Canvas:
        spec = denoiser.spec
        request = GenerationRequest(
            request_id=name,
            prompt_ids=(5,) * length,
            decoding=spec.resolve(Decoding(**decoding)),
            lane=lane,
        )
        return Canvas(request, spec, character_tokenizer(spec))

    return make


@pytest.fixture
def footprint(denoiser: Denoiser) -> Footprint:
    return Footprint(spec=denoiser.spec, dtype_bytes=4)


def scheduler(footprint: Footprint, total_bytes: int = 2**40, **settings: int) -> Scheduler:
    return Scheduler(EngineSettings(**settings), footprint, Budget(total_bytes))


def advance(canvases: list[Canvas], plan: EncodePlan | DenoisePlan) -> None:
    for canvas in canvases:
        if isinstance(plan, EncodePlan):
            canvas.encoded()
        else:
            length = canvas.block_length
            canvas.commit(np.full(length, 6), np.ones(length, dtype=np.bool_))


def test_without_work_there_is_no_plan(footprint: Footprint) -> None:
    assert scheduler(footprint).plan() is None


def test_prompts_are_encoded_before_they_are_denoised(
    footprint: Footprint, make_canvas: MakeCanvas
) -> None:
    s = scheduler(footprint)
    s.add(make_canvas("a"))
    kinds = []
    while (planned := s.plan()) is not None:
        plan, canvases = planned
        kinds.append(plan.kind)
        advance(canvases, plan)
        for canvas in canvases:
            if canvas.state is State.FINISHED:
                s.remove(canvas)
    assert kinds == ["encode", "denoise"]


def test_newcomers_delay_running_rows_by_one_forward_at_most(
    footprint: Footprint, make_canvas: MakeCanvas
) -> None:
    s = scheduler(footprint, max_prefill_rows=1)
    for i in range(6):
        s.add(make_canvas(f"c{i}", max_tokens=64))
    kinds = []
    for _ in range(8):
        planned = s.plan()
        assert planned is not None
        plan, canvases = planned
        kinds.append(plan.kind)
        if isinstance(plan, EncodePlan):
            advance(canvases, plan)
    assert kinds == ["encode", "denoise"] * 4


def test_no_shape_starves(footprint: Footprint, make_canvas: MakeCanvas) -> None:
    s = scheduler(footprint)
    s.add(make_canvas("short", block_length=16, max_tokens=16))
    s.add(make_canvas("narrow", block_length=8, max_tokens=8))
    s.add(make_canvas("scratch", block_length=16, max_tokens=16, cache="none"))
    seen: list[str] = []
    for _ in range(12):
        planned = s.plan()
        assert planned is not None
        plan, canvases = planned
        if isinstance(plan, EncodePlan):
            advance(canvases, plan)
        else:
            seen.append(canvases[0].request_id)
    assert {seen.count(name) for name in ("short", "narrow", "scratch")} <= {3, 4, 5}


def test_rows_of_one_plan_have_one_shape(footprint: Footprint, make_canvas: MakeCanvas) -> None:
    s = scheduler(footprint)
    for i in range(8):
        s.add(make_canvas(f"c{i}", block_length=(8, 16)[i % 2], max_tokens=8))
    for _ in range(6):
        planned = s.plan()
        assert planned is not None
        plan, canvases = planned
        assert len({c.block_length for c in canvases}) == 1
        if isinstance(plan, EncodePlan):
            advance(canvases, plan)


def test_rows_and_bytes_bound_admission(footprint: Footprint, make_canvas: MakeCanvas) -> None:
    by_rows = scheduler(footprint, max_rows=3)
    for i in range(5):
        by_rows.add(make_canvas(f"c{i}"))
    by_rows.plan()
    assert by_rows.active_count == 3
    need = footprint.request_bytes(make_canvas("x"))
    by_bytes = scheduler(footprint, total_bytes=2 * need)
    for i in range(5):
        by_bytes.add(make_canvas(f"c{i}"))
    by_bytes.plan()
    assert by_bytes.active_count == 2
    assert by_bytes.depth() == {"interactive": 0, "batch": 3}


def test_what_is_sent_back_comes_first_and_starts_over(
    footprint: Footprint, make_canvas: MakeCanvas
) -> None:
    s = scheduler(footprint, max_rows=1)
    first, second = make_canvas("first"), make_canvas("second")
    s.add(first)
    s.add(second)
    s.plan()
    s.send_back(first)
    assert first.state is State.WAITING
    assert s.budget.held_bytes == 0
    planned = s.plan()
    assert planned is not None
    assert planned[1] == [first]


def test_removing_a_waiting_or_an_admitted_canvas_frees_its_bytes(
    footprint: Footprint, make_canvas: MakeCanvas
) -> None:
    s = scheduler(footprint, max_rows=1)
    admitted, waiting = make_canvas("a"), make_canvas("b")
    s.add(admitted)
    s.add(waiting)
    s.plan()
    s.remove(admitted)
    s.remove(waiting)
    assert not s.has_work()
    assert s.budget.held_bytes == 0


def test_a_longer_context_costs_more_bytes(footprint: Footprint, make_canvas: MakeCanvas) -> None:
    short, long = make_canvas("a", length=10), make_canvas("b", length=10, max_tokens=64)
    assert reserved_context(short) == 10
    assert reserved_context(long) == 10 + 48
    assert context_bucket(129) == 256
    assert footprint.request_bytes(make_canvas("c", length=48, max_tokens=64)) >= (
        footprint.request_bytes(short)
    )
