"""Ancestral sampling reveals as often as the noise says, and reproduces a toy joint."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.diffusion.ancestral import denoise_uniform, first_hitting, unmask
from raydiff.spec import Noise
from tests.diffusion.denoising import Trace, decode
from tests.diffusion.joints import Joint, distance

ROWS = 20_000
NOISE_FLOOR = 0.02
"""Total variation that `ROWS` exact samples of 9 or 27 states stay within by far."""
PAIR = Joint(width=2, tokens=3, seed=4)
TRIPLE = Joint(width=3, tokens=3, seed=4)
UNIFORM_PAIR = Joint(width=2, tokens=3, seed=4, vocab=3)
times = st.floats(2**-7, 1, width=32)
units = st.floats(0, 1, width=32)
NEVER: dict[str, float | str] = {"stop_entropy": float("nan")}


def sample(
    policy: str,
    joint: Joint,
    steps: int | None,
    own: Mapping[str, float | str],
    noise: Noise = "absorbing",
    seed: int = 0,
) -> Trace:
    shape = (ROWS, joint.width)
    start = torch.zeros(shape, dtype=torch.long)
    if noise == "uniform":
        start = torch.randint(joint.vocab, shape, generator=torch.Generator().manual_seed(seed + 1))
    return decode(
        policy,
        joint.uniform if noise == "uniform" else joint.absorbing,
        start,
        torch.ones(shape, dtype=torch.bool),
        mask_id=0,
        vocab=joint.vocab,
        steps=steps,
        settings=own,
        noise=noise,
        temperature=1.0,
        seed=seed,
    )


def error(joint: Joint, trace: Trace) -> float:
    return distance(joint.histogram(trace.tokens), joint.probs_S)


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), t=times, share=units)
def test_nothing_closed_is_revealed_and_at_time_zero_all_is(
    seed: int, t: float, share: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    is_open = torch.rand(4, 8, generator=generator) < 0.5
    uniform = torch.rand(4, 8, generator=generator)
    times = torch.full((4,), t)
    assert not (unmask(is_open, times, times * share, uniform) & ~is_open).any()
    assert torch.equal(unmask(is_open, times, torch.zeros(4), uniform), is_open)


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), t=times)
def test_the_last_reverse_step_of_uniform_noise_is_the_clean_tokens(seed: int, t: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens, clean, noise = torch.randint(5, (3, 4, 8), generator=generator)
    choice = torch.rand(4, 8, generator=generator)
    times = torch.full((4,), t)
    last = denoise_uniform(tokens, clean, times, torch.zeros(4), choice, noise, 5)
    assert torch.equal(last, clean)


def test_at_time_t_a_share_t_is_masked() -> None:
    """MDLM's expected number of masks is t L, at every step."""
    trace = sample("ancestral", TRIPLE, 10, NEVER)
    for step, is_open in enumerate(trace.opens):
        share, expected = float(is_open.float().mean()), 1 - step / 10
        deviation = math.sqrt(expected * (1 - expected) / is_open.numel())
        assert abs(share - expected) <= 5 * deviation + 1e-9


@pytest.mark.parametrize("policy", ["ancestral", "flow"])
@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_one_step_gives_the_product_of_marginals(policy: str, noise: Noise) -> None:
    joint = UNIFORM_PAIR if noise == "uniform" else PAIR
    trace = sample(policy, joint, 1, NEVER, noise)
    assert distance(joint.histogram(trace.tokens), joint.product()) < NOISE_FLOOR
    assert error(joint, trace) > 0.15


@pytest.mark.parametrize("policy", ["ancestral", "flow"])
@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_more_steps_come_closer_to_the_joint(policy: str, noise: Noise) -> None:
    """With the true p(x0 | x_t) the error falls about as 1 / steps, down to that of sampling."""
    joint = UNIFORM_PAIR if noise == "uniform" else PAIR
    errors = [error(joint, sample(policy, joint, steps, NEVER, noise)) for steps in (1, 4, 16)]
    for coarse, fine in itertools.pairwise(errors):
        assert fine < 0.6 * coarse
    assert errors[-1] < 0.05


@pytest.mark.parametrize("remask", ["cap", "rescale", "loop"])
def test_remasking_leaves_the_joint_what_it_is(remask: str) -> None:
    own: dict[str, float | str] = {
        "remask": remask,
        "eta": 0.3,
        "loop_from": 0.6,
        "loop_to": 0.2,
        "loop_alpha": 0.7,
    }
    trace = sample("remask", PAIR, 32, own)
    hidden = [int((later & ~before).sum()) for before, later in itertools.pairwise(trace.opens)]
    assert sum(hidden) > ROWS
    assert error(PAIR, trace) < 0.04


def test_first_hitting_is_exact_and_the_limit_of_ancestral_sampling() -> None:
    """One position an event, with the true conditionals, leaves sampling error only."""
    events = sample("first_hitting", TRIPLE, None, {})
    assert error(TRIPLE, events) < NOISE_FLOOR
    assert (events.forwards == 3).all()
    fine = sample("ancestral", TRIPLE, 48, NEVER)
    assert distance(TRIPLE.histogram(events.tokens), TRIPLE.histogram(fine.tokens)) < 0.05


@settings(deadline=None)
@given(seed=st.integers(0, 10**6))
def test_an_event_reveals_exactly_one_open_position(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    is_open = torch.rand(9, 6, generator=generator) < 0.4
    revealed = first_hitting(is_open, torch.rand(9, 6, generator=generator))
    assert not (revealed & ~is_open).any()
    assert revealed.sum(1).tolist() == is_open.any(1).long().tolist()


def test_every_open_position_is_as_likely_to_be_hit() -> None:
    is_open = torch.tensor([True, False, True, True]).expand(30_000, 4)
    uniform = torch.rand(30_000, 4, generator=torch.Generator().manual_seed(0))
    share = first_hitting(is_open, uniform).float().mean(0)
    expected = torch.tensor([1 / 3, 0, 1 / 3, 1 / 3])
    torch.testing.assert_close(share, expected, atol=0.015, rtol=0)
