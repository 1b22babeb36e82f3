"""Every policy through the engine: the golden rules hold whatever a row's settings are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raydiff.engine import Engine
from raydiff.models.bert import BertDenoiser
from raydiff.models.loading import random_denoiser
from raydiff.request import Completion, Decoding, GenerationRequest
from tests.engine.conftest import character_tokenizer

FULL = {
    "quota": Decoding(policy="quota", steps=8, block_length=8),
    "margin": Decoding(policy="quota", steps=4, block_length=8, score="margin"),
    "entropy": Decoding(policy="quota", steps=4, block_length=8, score="entropy"),
    "random": Decoding(policy="quota", steps=4, score="random", block_length=8),
    "dream": Decoding(
        policy="quota", steps=6, score="entropy", schedule="timestep", score_temperature=0.1
    ),
    "threshold": Decoding(threshold=0.2, block_length=8),
    "factor": Decoding(factor=2.0),
    "entropy_bound": Decoding(policy="entropy_bound", entropy_bound=3.0),
    "hierarchical": Decoding(policy="hierarchical", threshold=0.5, low_threshold=0.1),
    "credit": Decoding(policy="credit", threshold=0.3, block_length=8),
    "ancestral": Decoding(policy="ancestral", steps=6, temperature=0.9),
    "first_hitting": Decoding(policy="first_hitting", temperature=0.5, block_length=4),
    "remask cap": Decoding(policy="remask", steps=8, remask="cap", eta=0.2, temperature=1.0),
    "remask rescale": Decoding(policy="remask", steps=6, remask="rescale", eta=0.5),
    "remask conf": Decoding(policy="remask", steps=6, remask="conf", block_length=8),
    "remask loop": Decoding(policy="remask", steps=9, remask="loop", eta=0.3, temperature=0.7),
    "edit": Decoding(policy="edit", threshold=0.3, edit_threshold=0.2, max_edits=3),
    "flow": Decoding(policy="flow", steps=6, temperature=0.8),
    "guided": Decoding(policy="quota", steps=8, guidance=1.5),
    "stable": Decoding(policy="quota", steps=16, stable_steps=2, block_length=16),
    "prefix": Decoding(policy="quota", steps=4, block_length=8, cache="prefix"),
    "edit, prefix": Decoding(
        policy="edit", threshold=0.2, edit_threshold=0.2, block_length=8, cache="prefix"
    ),
    "remask, dual": Decoding(
        policy="remask", steps=6, remask="conf", block_length=8, cache="dual", refresh_steps=4
    ),
    "dual": Decoding(
        policy="threshold", threshold=0.3, block_length=8, cache="dual", refresh_steps=2, window=3
    ),
}
UNIFORM = {
    "entropy_bound": Decoding(policy="entropy_bound", steps=6, entropy_bound=2.0),
    "stopping": Decoding(policy="entropy_bound", steps=8, entropy_bound=9.0, stop_entropy=9.0),
    "ancestral": Decoding(policy="ancestral", steps=5, temperature=1.0),
    "flow": Decoding(policy="flow", steps=5, temperature=0.6, block_length=8),
}
PROMPTS = ((5, 9, 14), (7,), (21, 6, 30, 31, 8, 9, 10, 11), (40, 41))
PIN = ((5, 33),)


@pytest.fixture(scope="module")
def full() -> BertDenoiser:
    return _variant("absorbing")


@pytest.fixture(scope="module")
def uniform() -> BertDenoiser:
    return _variant("uniform")


def _variant(noise: str) -> BertDenoiser:
    """The tiny model as one that attends in all directions, prompt and text in one sequence."""
    torch.set_num_threads(1)
    denoiser = random_denoiser()
    spec = replace(
        denoiser.spec,
        attention="full",
        noise=noise,
        target_position=None,
        context_length=96,
        block_length=16,
        defaults=Decoding(max_tokens=16),
    )
    return BertDenoiser(denoiser.model, spec)


def _run(
    denoiser: BertDenoiser, decodings: list[Decoding], staggered: bool = False
) -> list[Completion]:
    engine = Engine(denoiser, character_tokenizer(denoiser.spec))
    done: dict[str, Completion] = {}
    for i, decoding in enumerate(decodings):
        resolved = denoiser.spec.resolve(replace(decoding, max_tokens=16, seed=11, ignore_eos=True))
        prompt = PROMPTS[i % len(PROMPTS)]
        engine.submit(
            GenerationRequest(request_id=str(i), prompt_ids=prompt, decoding=resolved, pinned=PIN)
        )
        if staggered:
            done |= {e.request_id: e.completion for e in engine.step() if e.completion}
    while engine.has_work():
        done |= {e.request_id: e.completion for e in engine.step() if e.completion}
    return [done[str(i)] for i in range(len(decodings))]


def _alone(denoiser: BertDenoiser, decodings: list[Decoding]) -> list[Completion]:
    alone = []
    for i, decoding in enumerate(decodings):
        shifted = [decoding] * len(PROMPTS)  # the row keeps the prompt of its place
        alone.append(_run_one(denoiser, shifted[0], PROMPTS[i % len(PROMPTS)]))
    return alone


def _run_one(denoiser: BertDenoiser, decoding: Decoding, prompt: tuple[int, ...]) -> Completion:
    engine = Engine(denoiser, character_tokenizer(denoiser.spec))
    resolved = denoiser.spec.resolve(replace(decoding, max_tokens=16, seed=11, ignore_eos=True))
    engine.submit(
        GenerationRequest(request_id="x", prompt_ids=prompt, decoding=resolved, pinned=PIN)
    )
    while engine.has_work():
        for event in engine.step():
            if event.completion is not None:
                return event.completion
    raise AssertionError("no completion")


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_alone_equals_beside_every_other_policy(
    noise: str, full: BertDenoiser, uniform: BertDenoiser
) -> None:
    denoiser, kinds = (full, FULL) if noise == "absorbing" else (uniform, UNIFORM)
    decodings = list(kinds.values())
    alone = _alone(denoiser, decodings)
    for staggered in (False, True):
        together = _run(denoiser, decodings, staggered)
        for name, one, other in zip(kinds, alone, together, strict=True):
            assert one.token_ids == other.token_ids, name
            assert one.usage == other.usage, name


@pytest.mark.parametrize("name", FULL)
def test_no_mask_survives_and_pins_stay(name: str, full: BertDenoiser) -> None:
    done = _run_one(full, FULL[name], PROMPTS[0])
    assert len(done.token_ids) == 16
    assert full.spec.mask_id not in done.token_ids
    assert done.token_ids[PIN[0][0]] == PIN[0][1]
    assert done.finish_reason == "length"


@pytest.mark.parametrize("name", UNIFORM)
def test_pins_stay_under_uniform_noise(name: str, uniform: BertDenoiser) -> None:
    done = _run_one(uniform, UNIFORM[name], PROMPTS[2])
    assert len(done.token_ids) == 16
    assert done.token_ids[PIN[0][0]] == PIN[0][1]
    assert done.usage.forwards <= (UNIFORM[name].steps or 0) * (2 if name == "flow" else 1)


def test_an_approximate_cache_refreshed_at_every_step_is_no_cache(full: BertDenoiser) -> None:
    for cache in ("prefix", "dual"):
        cached = Decoding(policy="quota", steps=8, block_length=8, cache=cache, refresh_steps=1)
        plain = Decoding(policy="quota", steps=8, block_length=8)
        assert (
            _run_one(full, cached, PROMPTS[2]).token_ids
            == _run_one(full, plain, PROMPTS[2]).token_ids
        )


def test_an_approximate_cache_is_exact_for_one_layer() -> None:
    denoiser = random_denoiser(layers=1)
    spec = replace(
        denoiser.spec,
        attention="full",
        target_position=None,
        context_length=96,
        defaults=Decoding(max_tokens=16),
    )
    one_layer = BertDenoiser(denoiser.model, spec)
    plain = _run_one(one_layer, Decoding(policy="quota", steps=4, block_length=8), PROMPTS[2])
    for cache in ("prefix", "dual"):
        cached = Decoding(policy="quota", steps=4, block_length=8, cache=cache)
        assert _run_one(one_layer, cached, PROMPTS[2]).token_ids == plain.token_ids


def test_guidance_of_zero_is_no_guidance_and_above_it_counts_both_forwards(
    full: BertDenoiser,
) -> None:
    plain = _run_one(full, Decoding(policy="quota", steps=8), PROMPTS[0])
    zero = _run_one(full, Decoding(policy="quota", steps=8, guidance=0.0), PROMPTS[0])
    guided = _run_one(full, Decoding(policy="quota", steps=8, guidance=4.0), PROMPTS[0])
    assert zero.token_ids == plain.token_ids
    assert guided.token_ids != plain.token_ids
    assert guided.usage.forwards == 2 * plain.usage.forwards


def test_stable_positions_commit_before_their_turn(full: BertDenoiser) -> None:
    slow = _run_one(full, Decoding(policy="quota", steps=16), PROMPTS[0])
    quick = _run_one(full, FULL["stable"], PROMPTS[0])
    assert quick.usage.forwards < slow.usage.forwards


def test_ancestral_steps_that_unmask_nothing_cost_no_forward(full: BertDenoiser) -> None:
    many = Decoding(policy="ancestral", steps=16, block_length=16)
    assert _run_one(full, replace(many, block_length=8), PROMPTS[0]).usage.forwards < 32
    forwards = _run_one(full, many, PROMPTS[0]).usage.forwards
    assert forwards <= 15  # one position is pinned, and each of the others unmasks once
