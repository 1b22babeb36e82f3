"""What a forward computes, and what it carries along for nothing."""

from __future__ import annotations

from raydiff.config import EngineSettings
from raydiff.engine.canvas import Canvas
from raydiff.engine.memory import Budget, Footprint
from raydiff.engine.plan import DenoisePlan, EncodePlan
from raydiff.engine.report import Positions, positions_of
from raydiff.engine.scheduler import Plan, Scheduler
from raydiff.engine.state import State
from raydiff.models.denoiser import Denoiser
from raydiff.request import Decoding, GenerationRequest
from tests.engine.conftest import ListRecorder, MakeEngine, character_tokenizer


def plans(denoiser: Denoiser, *lengths: int) -> tuple[Plan, Plan]:
    """The encoding of prompts of these lengths, and the first denoising forward after it."""
    spec = denoiser.spec
    footprint = Footprint(spec=spec, dtype_bytes=4)
    scheduler = Scheduler(EngineSettings(), footprint, Budget(2**40))
    for i, length in enumerate(lengths):
        request = GenerationRequest(
            request_id=str(i),
            prompt_ids=(5,) * length,
            decoding=spec.resolve(Decoding()),
            lane="batch",
        )
        scheduler.add(Canvas(request, spec, character_tokenizer(spec)))
    encode = next_plan(scheduler)
    return encode, next_plan(scheduler)


def next_plan(scheduler: Scheduler) -> Plan:
    planned = scheduler.plan()
    assert planned is not None
    plan, canvases = planned
    for canvas in canvases:
        canvas.state = State.DENOISE
    return plan


def test_rows_of_one_length_have_no_padding(denoiser: Denoiser) -> None:
    encode, _ = plans(denoiser, 20, 20, 20)
    assert isinstance(encode, EncodePlan)
    assert positions_of(encode) == Positions(60, 0, 0, 0)


def test_an_encoding_pads_to_its_longest_row(denoiser: Denoiser) -> None:
    encode, _ = plans(denoiser, 20, 5)
    assert positions_of(encode) == Positions(25, 15, 0, 0)


def test_a_denoising_forward_reads_all_caches_as_far_as_the_longest(denoiser: Denoiser) -> None:
    _, denoise = plans(denoiser, 40, 5)
    assert isinstance(denoise, DenoisePlan)
    found = positions_of(denoise)
    assert (found.context, found.context_padding) == (45, 2 * 64 - 45)
    assert found.padding == 0


def test_the_recorder_sees_what_was_padded(make_engine: MakeEngine) -> None:
    recorder = ListRecorder()
    engine = make_engine(recorder)
    engine.generate([[5] * 20, [5] * 5])
    first = recorder.steps[0]
    assert (first.kind, first.positions, first.padded_positions) == ("encode", 25, 15)


def test_a_completion_tells_how_long_it_took_in_all(make_engine: MakeEngine) -> None:
    (done,) = make_engine().generate([[5] * 20])
    assert 0.0 <= done.queue_s < done.total_s
