"""The golden rules, in fp32 with a tiny random model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raydiff.engine import Engine
from raydiff.models.bert import BertDenoiser
from raydiff.models.denoiser import Denoiser
from raydiff.models.loading import random_denoiser
from raydiff.request import Completion, Decoding, GenerationRequest
from tests.engine.conftest import LETTERS, ListRecorder, MakeEngine, character_tokenizer

MIX = (
    Decoding(),
    Decoding(max_tokens=40, steps=4),
    Decoding(max_tokens=23, threshold=0.2),
    Decoding(temperature=0.8, seed=11, max_tokens=16),
    Decoding(temperature=1.5, seed=12, top_k=5, top_p=0.9, max_tokens=33, steps=8),
    Decoding(threshold=0.0, max_tokens=64),
    Decoding(block_length=8, max_tokens=30, steps=3),
    Decoding(cache="none", max_tokens=20, ignore_eos=True),
    Decoding(min_tokens=10, stop=("SS", "e"), max_tokens=32),
)
PROMPTS = ("hello world", "a", "the quick brown fox jumps over the lazy dog", "zz <mask> zz", "Q")


@pytest.fixture(scope="module")
def ending_denoiser() -> BertDenoiser:
    """A model that often predicts the end token, so that texts end inside blocks."""
    model = random_denoiser(seed=10)
    model.spec = replace(model.spec, end_bias=-1.0, end_threshold=0.5, drop_after_end=True)
    return model


def run(engine: Engine, requests: Sequence[GenerationRequest]) -> dict[str, Completion]:
    """Submit everything at once and step to the end."""
    for request in requests:
        engine.submit(request)
    return drain(engine)


def drain(engine: Engine) -> dict[str, Completion]:
    done = {}
    while engine.has_work():
        for event in engine.step():
            if event.completion is not None:
                done[event.request_id] = event.completion
    return done


def tokens(done: dict[str, Completion]) -> dict[str, tuple[int, ...]]:
    return {name: c.token_ids for name, c in done.items()}


def requests_of(engine: Engine, order: Sequence[int]) -> list[GenerationRequest]:
    return [
        engine.request(
            PROMPTS[i % len(PROMPTS)],
            MIX[i % len(MIX)],
            request_id=str(i),
            lane="batch" if i % 2 else "interactive",
        )
        for i in order
    ]


def test_same_seed_gives_the_same_tokens_and_another_seed_others(make_engine: MakeEngine) -> None:
    decoding = Decoding(temperature=1.0, seed=7)
    first, again = (make_engine().generate(["hello"], decoding)[0] for _ in range(2))
    other = make_engine().generate(["hello"], replace(decoding, seed=8))[0]
    assert first.token_ids == again.token_ids
    assert first.token_ids != other.token_ids


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(order=st.permutations(range(18)), gaps=st.lists(st.integers(0, 4), min_size=18, max_size=18))
def test_alone_equals_any_batch_arrival_order_and_mix(
    ending_denoiser: BertDenoiser, order: list[int], gaps: list[int]
) -> None:
    """A request's tokens do not depend on its neighbours, their parameters or when they came."""

    def engine() -> Engine:
        return Engine(ending_denoiser, character_tokenizer(ending_denoiser.spec))

    crowd = engine()
    done: dict[str, Completion] = {}
    for request, gap in zip(requests_of(crowd, order), gaps, strict=True):
        crowd.submit(request)
        for _ in range(gap):
            done |= {e.request_id: e.completion for e in crowd.step() if e.completion}
    done |= drain(crowd)
    alone: dict[str, Completion] = {}
    for request in requests_of(engine(), sorted(order)):
        alone |= run(engine(), [request])
    assert tokens(done) == tokens(alone)
    assert {k: c.finish_reason for k, c in done.items()} == {
        k: c.finish_reason for k, c in alone.items()
    }


def test_the_mix_ends_inside_blocks_and_at_the_limit(ending_denoiser: BertDenoiser) -> None:
    """The invariance test is only worth something if it meets every way to end."""
    engine = Engine(ending_denoiser, character_tokenizer(ending_denoiser.spec))
    done = run(engine, requests_of(engine, range(18)))
    assert {c.finish_reason for c in done.values()} == {"stop", "length"}
    assert len({len(c.token_ids) for c in done.values()}) > 5


@pytest.mark.parametrize("decoding", MIX, ids=range(len(MIX)))
def test_cached_equals_recomputed_from_scratch(make_engine: MakeEngine, decoding: Decoding) -> None:
    cached = make_engine().generate(PROMPTS, replace(decoding, cache="auto"))
    scratch = make_engine().generate(PROMPTS, replace(decoding, cache="none"))
    assert [c.token_ids for c in cached] == [c.token_ids for c in scratch]


def test_no_mask_token_is_predicted_or_survives(denoiser: Denoiser) -> None:
    """Even of a model that wants nothing more than to predict the mask token."""
    eager = random_denoiser(seed=3)
    eager.model.cls.predictions.bias[eager.spec.mask_id] = 100.0
    engine = Engine(eager, character_tokenizer(eager.spec))
    for decoding in MIX:
        for completion in engine.generate(PROMPTS, decoding):
            assert not {eager.spec.mask_id, 0, 1} & set(completion.token_ids)
            assert completion.finish_reason in ("stop", "length")


def test_a_literal_mask_token_in_a_prompt_is_text(engine: Engine) -> None:
    ids = engine.tokenizer.prompt_ids("<mask>")
    assert engine.spec.mask_id not in ids
    assert engine.tokenizer.decode(ids[1:-1]) == "<mask>"


def test_a_mask_id_given_as_a_prompt_token_stays_what_it_is(engine: Engine) -> None:
    """Open positions are tracked, not read off the tokens: the prompt is never filled in."""
    prompt = (1, 10, engine.spec.mask_id, 11, 2)
    request = engine.request(prompt, Decoding(max_tokens=8))
    done = run(engine, [request])[request.request_id]
    assert request.prompt_ids == prompt
    assert done.usage.prompt_tokens == 5
    assert done.usage.completion_tokens == 8


def test_pinned_positions_never_change(engine: Engine) -> None:
    pins = ((0, 20), (5, 21), (17, 22), (18, 23))
    decodings = (Decoding(max_tokens=24), Decoding(max_tokens=24, threshold=0.0))
    for decoding in decodings:
        request = replace(engine.request("hello", decoding), pinned=pins)
        ids = run(engine, [request])[request.request_id].token_ids
        assert [(offset, ids[offset]) for offset, _ in pins] == list(pins)


def test_a_text_may_be_pinned_whole(engine: Engine) -> None:
    """Then no position is left to score, in a forward of that row alone."""
    request = replace(engine.request("hello", Decoding(max_tokens=2)), pinned=((0, 20), (1, 21)))
    assert run(engine, [request])[request.request_id].token_ids == (20, 21)


def test_nothing_after_the_end_token_counts(ending_denoiser: BertDenoiser) -> None:
    engine = Engine(ending_denoiser, character_tokenizer(ending_denoiser.spec))
    ended = [
        c for c in engine.generate(PROMPTS, Decoding(max_tokens=64)) if c.finish_reason == "stop"
    ]
    assert ended
    for completion in ended:
        assert 2 not in completion.token_ids
        assert completion.usage.completion_tokens == len(completion.token_ids) < 64
        assert completion.text == engine.tokenizer.decode(completion.token_ids)


def test_max_tokens_need_be_no_multiple_of_the_block(make_engine: MakeEngine) -> None:
    for limit in (1, 15, 16, 17, 31, 64):
        done = make_engine().generate(["hello"], Decoding(max_tokens=limit, ignore_eos=True))[0]
        assert len(done.token_ids) == limit
        assert done.finish_reason == "length"


def test_threshold_one_commits_one_a_step_and_zero_all_at_once(engine: Engine) -> None:
    one, zero = (
        engine.generate(["hello"], Decoding(max_tokens=16, threshold=t, ignore_eos=True))[0]
        for t in (1.0, 0.0)
    )
    assert one.usage.forwards == 16
    assert zero.usage.forwards == 1


@pytest.mark.parametrize("steps", [1, 3, 5, 16])
def test_steps_bound_the_forwards_of_a_block(engine: Engine, steps: int) -> None:
    done = engine.generate(["hello"], Decoding(max_tokens=16, steps=steps, ignore_eos=True))[0]
    assert done.usage.forwards == steps


def test_steps_under_the_threshold_policy_bound_it_too(engine: Engine) -> None:
    decoding = Decoding(policy="threshold", threshold=1.0, steps=4, max_tokens=16, ignore_eos=True)
    assert engine.generate(["hello"], decoding)[0].usage.forwards == 4


def test_stop_strings_cut_the_text_and_the_tokens(make_engine: MakeEngine) -> None:
    full = make_engine().generate(["hello"], Decoding(max_tokens=64))[0].text
    stop = full[20:23]
    cut = make_engine().generate(["hello"], Decoding(max_tokens=64, stop=(stop,)))[0]
    assert cut.text == full[: full.index(stop)]
    assert cut.finish_reason == "stop"
    assert len(cut.token_ids) == len(cut.text)


@pytest.mark.parametrize("begin", [13, 15, 16, 31])
def test_a_stop_string_may_span_blocks(make_engine: MakeEngine, begin: int) -> None:
    """Blocks have 16 tokens of one character each. A second stop string begins with the first."""
    full = make_engine().generate(["hello"], Decoding(max_tokens=64))[0].text
    stop = full[begin : begin + 5]
    for stops in ((stop,), (stop + "zz", stop, "zzz")):
        cut = make_engine().generate(["hello"], Decoding(max_tokens=64, stop=stops))[0]
        assert cut.text == full[: full.index(stop)]
        assert (len(cut.token_ids), cut.finish_reason) == (len(cut.text), "stop")


@settings(max_examples=20, deadline=None)
@given(text=st.text(LETTERS, min_size=0, max_size=40), stop=st.text("SteY", min_size=1, max_size=4))
def test_a_stream_is_the_text_in_append_only_pieces(
    denoiser: Denoiser, text: str, stop: str
) -> None:
    engine = Engine(denoiser, character_tokenizer(denoiser.spec))
    request = engine.request(text, Decoding(max_tokens=48, stop=(stop,)), stream=True)
    engine.submit(request)
    pieces, final = [], None
    while engine.has_work():
        for event in engine.step():
            pieces.append(event.text)
            final = event.completion
            assert stop not in "".join(pieces)
    assert final is not None
    assert "".join(pieces) == final.text


def test_a_stream_shows_text_before_the_block_is_finished(engine: Engine) -> None:
    engine.submit(engine.request("hello", Decoding(max_tokens=16), stream=True))
    events = []
    while engine.has_work():
        events += engine.step()
    assert len([e for e in events if e.text]) > 1


def test_random_seeds_differ_between_requests(engine: Engine) -> None:
    random.seed(0)
    texts = {c.text for c in engine.generate(["hello"] * 6, Decoding(temperature=2.0))}
    assert len(texts) > 1


@pytest.mark.parametrize("decoding", MIX, ids=range(len(MIX)))
def test_dropped_positions_are_dropped_with_and_without_a_cache(
    ending_denoiser: BertDenoiser, decoding: Decoding
) -> None:
    def texts(cache: str) -> list[str]:
        engine = Engine(ending_denoiser, character_tokenizer(ending_denoiser.spec))
        return [c.text for c in engine.generate(PROMPTS, replace(decoding, cache=cache))]

    assert texts("auto") == texts("none")


def test_positions_after_a_committed_end_are_not_computed(ending_denoiser: BertDenoiser) -> None:
    """Fewer positions than rows times block length, and pinned text is never among the dropped."""
    recorder = ListRecorder()
    engine = Engine(ending_denoiser, character_tokenizer(ending_denoiser.spec), None, recorder)
    engine.generate(PROMPTS)
    denoise = [s for s in recorder.steps if s.kind == "denoise"]
    assert any(s.positions < s.rows * 16 for s in denoise)
    request = replace(engine.request("hello"), pinned=((14, 20),))
    assert run(engine, [request])[request.request_id].token_ids[14] == 20
