"""Transition matrices, posteriors and the bound of D3PM, against brute force and closed forms."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raydiff.diffusion.bound import absorbing_weight, uniform_kl
from raydiff.diffusion.d3pm import (
    BetaSchedule,
    Chain,
    absorbing_step,
    betas,
    divergence,
    draw,
    gaussian_step,
    uniform_step,
)
from raydiff.diffusion.posterior import uniform_posterior

KINDS = ("uniform", "absorbing", "gaussian")
SCHEDULES: tuple[BetaSchedule, ...] = ("linear", "cosine", "harmonic")
MASK = 1

kinds = st.sampled_from(KINDS)
schedules = st.sampled_from(SCHEDULES)
sizes = st.integers(2, 7)
lengths = st.integers(1, 9)
seeds = st.integers(0, 2**31)


def step_of(kind: str, size: int) -> Callable[[float], Tensor]:
    if kind == "uniform":
        return lambda beta: uniform_step(beta, size)
    if kind == "absorbing":
        return lambda beta: absorbing_step(beta, size, MASK)
    return lambda beta: gaussian_step(beta, size)


def chain_of(kind: str, schedule: BetaSchedule, size: int, length: int) -> Chain:
    return Chain.of(step_of(kind, size), betas(schedule, length))


def pairs(size: int) -> tuple[Tensor, Tensor]:
    """Every (noised, clean) pair."""
    numbers = torch.arange(size)
    return numbers.repeat_interleave(size), numbers.repeat(size)


def possible(chain: Chain, time: int) -> tuple[Tensor, Tensor]:
    """The pairs where the noised token can arise from the clean one by `time`."""
    noised_N, clean_N = pairs(chain.until_SVV.shape[1])
    can_N = chain.until_SVV[time, clean_N, noised_N] > 0
    return noised_N[can_N], clean_N[can_N]


def random_probs(rows: int, size: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.rand(rows, size, generator=generator, dtype=torch.float64).add(0.01).log().softmax(1)
    )


@given(kind=kinds, schedule=schedules, size=sizes, length=lengths)
def test_rows_are_distributions(kind: str, schedule: BetaSchedule, size: int, length: int) -> None:
    chain = chain_of(kind, schedule, size, length)
    for matrices in (chain.steps_TVV, chain.until_SVV):
        assert bool((matrices >= 0).all())
        assert torch.allclose(matrices.sum(dim=2), torch.ones(1, dtype=torch.float64))


@given(kind=st.sampled_from(["uniform", "gaussian"]), schedule=schedules, size=sizes)
def test_uniform_and_gaussian_noise_are_doubly_stochastic(
    kind: str, schedule: BetaSchedule, size: int
) -> None:
    chain = chain_of(kind, schedule, size, 4)
    assert torch.allclose(chain.steps_TVV, chain.steps_TVV.transpose(1, 2))
    assert torch.allclose(chain.until_SVV.sum(dim=1), torch.ones(1, dtype=torch.float64))


@given(kind=kinds, schedule=schedules, size=sizes, length=lengths)
def test_the_cumulative_matrix_is_the_product_of_the_steps(
    kind: str, schedule: BetaSchedule, size: int, length: int
) -> None:
    chain = chain_of(kind, schedule, size, length)
    product = torch.linalg.multi_dot([*chain.steps_TVV, torch.eye(size, dtype=torch.float64)])
    assert torch.allclose(chain.until_SVV[-1], product)


@given(kind=kinds, size=sizes, beta=st.floats(0.5, 0.95))
def test_the_stationary_distribution_stays_and_is_reached(
    kind: str, size: int, beta: float
) -> None:
    step = step_of(kind, size)(beta)
    stationary = torch.full((size,), 1 / size, dtype=torch.float64)
    if kind == "absorbing":
        stationary = torch.eye(size, dtype=torch.float64)[MASK]
    assert torch.allclose(stationary @ step, stationary)
    assert torch.allclose(torch.linalg.matrix_power(step, 10**6), stationary.expand(size, size))


def test_gaussian_noise_prefers_near_tokens_and_spreads_with_beta() -> None:
    narrow, wide = gaussian_step(0.01, 9)[4], gaussian_step(0.5, 9)[4]
    assert bool((narrow[4:].diff() < 0).all())
    assert narrow[5] > narrow[6]
    assert wide[0] > narrow[0]
    assert wide[4] < narrow[4]


@pytest.mark.parametrize("length", [1, 5, 40])
def test_harmonic_betas_leave_alone_one_minus_t(length: int) -> None:
    kept_T = (1 - betas("harmonic", length)).cumprod(0)
    times_T = torch.arange(1, length + 1, dtype=torch.float64) / length
    assert torch.allclose(kept_T, 1 - times_T)


def test_cosine_betas_follow_the_cosine_and_linear_ones_their_ends() -> None:
    kept_T = (1 - betas("cosine", 100)).cumprod(0)
    assert bool((kept_T.diff() < 0).all())
    assert float(kept_T[49]) == pytest.approx(0.7, abs=0.02)
    assert float(kept_T[-1]) == pytest.approx(0.0, abs=1e-9)
    assert betas("linear", 3, 0.1, 0.3).tolist() == pytest.approx([0.1, 0.2, 0.3])


@given(kind=kinds, schedule=schedules, size=sizes, length=lengths, data=st.data())
def test_the_posterior_is_bayes_over_whole_paths(
    kind: str, schedule: BetaSchedule, size: int, length: int, data: st.DataObject
) -> None:
    chain = chain_of(kind, schedule, size, length)
    time = data.draw(st.integers(1, length))
    noised_N, clean_N = possible(chain, time)
    time_N = torch.full_like(clean_N, time)
    posterior_NV = chain.posterior(noised_N, clean_N, time_N)
    path = torch.eye(size, dtype=torch.float64)
    for step in chain.steps_TVV[: time - 1]:
        path = path @ step
    for row, (noised, clean) in enumerate(zip(noised_N, clean_N, strict=True)):
        joint_V = path[clean] * chain.steps_TVV[time - 1][:, noised]
        assert torch.allclose(posterior_NV[row], joint_V / joint_V.sum())


@given(schedule=schedules, size=st.integers(3, 8), data=st.data())
def test_the_closed_form_of_the_uniform_posterior_equals_the_matrices(
    schedule: BetaSchedule, size: int, data: st.DataObject
) -> None:
    length = 6
    chain = chain_of("uniform", schedule, size, length)
    time = data.draw(st.integers(1, length))
    noised_N, clean_N = possible(chain, time)
    kept = torch.cat([torch.ones(1, dtype=torch.float64), (1 - betas(schedule, length)).cumprod(0)])
    shares = uniform_posterior(noised_N == clean_N, kept[time], kept[time - 1], size)
    closed_NV = (shares.noise / size)[:, None].repeat(1, size)
    closed_NV.scatter_add_(1, noised_N[:, None], shares.stay[:, None])
    closed_NV.scatter_add_(1, clean_N[:, None], shares.clean[:, None])
    matrices_NV = chain.posterior(noised_N, clean_N, torch.full_like(clean_N, time))
    assert torch.allclose(closed_NV, matrices_NV, atol=1e-9)


@given(schedule=schedules, time=st.integers(1, 6))
def test_the_closed_form_of_the_absorbing_posterior_equals_the_matrices(
    schedule: BetaSchedule, time: int
) -> None:
    """A masked token is revealed with probability (alpha_s - alpha_t) / (1 - alpha_t)."""
    chain = chain_of("absorbing", schedule, 4, 6)
    kept = torch.cat([torch.ones(1, dtype=torch.float64), (1 - betas(schedule, 6)).cumprod(0)])
    reveal = absorbing_weight(kept[time - 1], kept[time])
    clean_N = torch.tensor([0, 2, 3])
    masked_NV = chain.posterior(torch.full((3,), MASK), clean_N, torch.full((3,), time))
    assert torch.allclose(masked_NV.gather(1, clean_N[:, None])[:, 0], reveal.expand(3))
    assert torch.allclose(masked_NV[:, MASK], 1 - reveal.expand(3))
    if float(kept[time]) > 1e-12:
        open_NV = chain.posterior(clean_N, clean_N, torch.full((3,), time))
        assert torch.allclose(open_NV, torch.eye(4, dtype=torch.float64)[clean_N])


@given(schedule=schedules, size=st.integers(2, 8), time=st.integers(1, 6), seed=seeds)
def test_the_closed_form_of_the_uniform_bound_equals_the_matrices(
    schedule: BetaSchedule, size: int, time: int, seed: int
) -> None:
    chain = chain_of("uniform", schedule, size, 6)
    noised_N, clean_N = possible(chain, time)
    probs_NV = random_probs(len(clean_N), size, seed)
    kept = torch.cat([torch.ones(1, dtype=torch.float64), (1 - betas(schedule, 6)).cumprod(0)])
    alpha_t_N, alpha_s_N = kept[time].expand(len(clean_N)), kept[time - 1].expand(len(clean_N))
    closed_N = uniform_kl(probs_NV.log(), noised_N, clean_N, alpha_s_N, alpha_t_N)
    matrices_N = chain.step_loss(probs_NV, noised_N, clean_N, torch.full_like(clean_N, time))
    assert torch.allclose(closed_N, matrices_N, atol=1e-8)


@given(size=st.integers(3, 7), time=st.integers(1, 6), seed=seeds)
def test_the_absorbing_bound_is_weighted_cross_entropy_of_masked_tokens(
    size: int, time: int, seed: int
) -> None:
    chain = chain_of("absorbing", "harmonic", size, 6)
    clean_N = torch.tensor([token for token in range(size) if token != MASK])
    noised_N, time_N = torch.full_like(clean_N, MASK), torch.full_like(clean_N, time)
    probs_NV = random_probs(len(clean_N), size, seed)
    probs_NV[:, MASK] = 0
    probs_NV /= probs_NV.sum(dim=1, keepdim=True)
    entropy_N = -probs_NV.gather(1, clean_N[:, None])[:, 0].log()
    weight = absorbing_weight(torch.tensor(1 - (time - 1) / 6), torch.tensor(1 - time / 6))
    losses_N = chain.step_loss(probs_NV, noised_N, clean_N, time_N)
    assert torch.allclose(losses_N, weight * entropy_N, atol=1e-6)
    assert float(weight) == pytest.approx(1 / time)  # LLaDA's 1/t, spread over 6 steps of 1/6


@given(kind=kinds, schedule=schedules, size=sizes, time=st.integers(1, 5), seed=seeds)
def test_the_reverse_step_is_the_mean_posterior(
    kind: str, schedule: BetaSchedule, size: int, time: int, seed: int
) -> None:
    chain = chain_of(kind, schedule, size, 5)
    probs_V = random_probs(1, size, seed)[0]
    for noised in range(size):
        able_K = (chain.until_SVV[time, :, noised] > 0).nonzero()[:, 0]
        if len(able_K) == 0:
            continue
        noised_K, time_K = torch.full_like(able_K, noised), torch.full_like(able_K, time)
        weights_K = probs_V[able_K] / probs_V[able_K].sum()
        mean_V = weights_K @ chain.posterior(noised_K, able_K, time_K)
        reverse_NV = chain.reverse(probs_V[None], noised_K[:1], time_K[:1])
        assert torch.allclose(reverse_NV[0], mean_V, atol=1e-9)
        assert float(reverse_NV.sum()) == pytest.approx(1.0)


@given(kind=kinds, size=sizes, time=st.integers(1, 5))
def test_a_certain_model_has_no_loss_after_the_first_step(kind: str, size: int, time: int) -> None:
    """With x_0 known both reverse forms are the posterior, and the bound is zero."""
    chain = chain_of(kind, "harmonic", size, 5)
    noised_N, clean_N = possible(chain, time)
    time_N = torch.full_like(clean_N, time)
    known_NV = torch.eye(size, dtype=torch.float64)[clean_N]
    losses_N = chain.step_loss(known_NV, noised_N, clean_N, time_N)
    assert torch.allclose(losses_N, torch.zeros(1, dtype=torch.float64), atol=1e-9)
    both = (
        chain.reverse(known_NV, noised_N, time_N),
        chain.reverse_jointly(known_NV, noised_N, time_N),
    )
    assert torch.allclose(*both, atol=1e-9)


@given(size=sizes, seed=seeds, weight=st.floats(0, 3))
def test_the_hybrid_loss_adds_weighted_cross_entropy_and_step_one_is_likelihood(
    size: int, seed: int, weight: float
) -> None:
    chain = chain_of("uniform", "harmonic", size, 5)
    noised_N, clean_N = possible(chain, 1)
    probs_NV = random_probs(len(clean_N), size, seed)
    entropy_N = -probs_NV.gather(1, clean_N[:, None])[:, 0].log()
    time_N = torch.ones_like(clean_N)
    hybrid_N = chain.hybrid_loss(probs_NV.log() + 3.0, noised_N, clean_N, time_N, weight)
    assert torch.allclose(hybrid_N, (1 + weight) * entropy_N)


@given(kind=st.sampled_from(["uniform", "gaussian"]), size=sizes)
def test_the_prior_loss_vanishes_as_the_chain_forgets(kind: str, size: int) -> None:
    stationary = torch.full((size,), 1 / size, dtype=torch.float64)
    clean_N = torch.arange(size)
    forgetful = Chain.of(step_of(kind, size), torch.full((400,), 0.9, dtype=torch.float64))
    assert float(forgetful.prior_loss(clean_N, stationary).max()) < 1e-6
    short = chain_of(kind, "linear", size, 2)
    assert float(short.prior_loss(clean_N, stationary).min()) > 0.01


def test_the_prior_loss_of_absorbing_noise_is_infinite_until_all_is_absorbed() -> None:
    stationary, clean_N = torch.eye(4, dtype=torch.float64)[MASK], torch.tensor([0, 2])
    whole = chain_of("absorbing", "harmonic", 4, 5)
    assert whole.prior_loss(clean_N, stationary).tolist() == pytest.approx([0.0, 0.0])
    part = chain_of("absorbing", "linear", 4, 5)
    assert part.prior_loss(clean_N, stationary).tolist() == [float("inf")] * 2


@given(kind=kinds, size=sizes, time=st.integers(0, 5), seed=seeds)
@settings(max_examples=25)
def test_noised_tokens_have_the_cumulative_matrix_as_frequencies(
    kind: str, size: int, time: int, seed: int
) -> None:
    chain = chain_of(kind, "harmonic", size, 5)
    count = 4000
    clean_N = torch.full((count,), size - 1)
    uniform_N = torch.rand(count, generator=torch.Generator().manual_seed(seed))
    noised_N = chain.noise(clean_N, torch.full_like(clean_N, time), uniform_N)
    shares_V = torch.bincount(noised_N, minlength=size) / count
    assert float((shares_V - chain.until_SVV[time, size - 1]).abs().max()) < 0.05


def test_a_draw_never_takes_an_impossible_token() -> None:
    probs_NV = torch.tensor([[0.0, 0.4, 0.6, 0.0]], dtype=torch.float64).repeat(3, 1)
    uniform_N = torch.tensor([0.0, 0.4, 1.0])
    assert draw(probs_NV, uniform_N).tolist() == [1, 2, 2]


def test_a_divergence_is_infinite_where_the_model_excludes_the_truth() -> None:
    certain, other = torch.eye(2, dtype=torch.float64)
    assert float(divergence(certain[None], other[None])) == float("inf")


def joint_over_pairs(size: int) -> Tensor:
    """A joint of two tokens whose parts are far from independent."""
    joint = torch.full((size, size), 0.02, dtype=torch.float64)
    joint[0, 2], joint[2, 0], joint[1, 1] = 0.5, 0.3, 0.2
    return joint / joint.sum()


def sampled_joint(chain: Chain, joint: Tensor, count: int, mask_start: bool) -> Tensor:
    """Frequencies of pairs drawn by ancestral sampling with the exact p(x_0 | x_t) of each part."""
    size = len(joint)
    generator = torch.Generator().manual_seed(7)
    shape = (count, 2)
    noised_N2 = torch.randint(size, shape, generator=generator)
    if mask_start:
        noised_N2 = torch.full(shape, size - 1)
    for time in range(chain.length, 0, -1):
        until = chain.until_SVV[time]
        first_NV, second_NV = until[:, noised_N2[:, 0]].T, until[:, noised_N2[:, 1]].T
        both_NVV = joint * first_NV[:, :, None] * second_NV[:, None, :]
        both_NVV = both_NVV / both_NVV.sum(dim=(1, 2), keepdim=True)
        time_N = torch.full((count,), time)
        columns = []
        for part, probs_NV in enumerate((both_NVV.sum(2), both_NVV.sum(1))):
            step_NV = chain.reverse(probs_NV, noised_N2[:, part], time_N)
            columns.append(draw(step_NV, torch.rand(count, generator=generator)))
        noised_N2 = torch.stack(columns, dim=1)
    counts = torch.bincount(noised_N2[:, 0] * size + noised_N2[:, 1], minlength=size**2)
    return counts.view(size, size) / count


@pytest.mark.parametrize("kind", ["uniform", "absorbing"])
def test_ancestral_sampling_with_an_oracle_reproduces_a_joint_as_steps_grow(kind: str) -> None:
    """One step gives the product of the marginals; many steps give the joint."""
    size = 4
    joint = joint_over_pairs(size)
    if kind == "absorbing":  # the last token is the mask: no text holds it
        joint[size - 1, :], joint[:, size - 1] = 0, 0
        joint = joint / joint.sum()
    product = joint.sum(1)[:, None] * joint.sum(0)[None, :]
    steps = {"uniform": uniform_step, "absorbing": lambda b, n: absorbing_step(b, n, n - 1)}[kind]
    distances = []
    for length in (1, 4, 40):
        chain = Chain.of(lambda beta: steps(beta, size), betas("harmonic", length))
        shares = sampled_joint(chain, joint, 6000, kind == "absorbing")
        distances.append(float((shares - joint).abs().sum()) / 2)
        if length == 1:
            assert float((shares - product).abs().sum()) / 2 < 0.04
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.04


def test_every_pair_of_kind_and_schedule_makes_a_chain() -> None:
    for kind, schedule in itertools.product(KINDS, SCHEDULES):
        assert chain_of(kind, schedule, 5, 3).length == 3
