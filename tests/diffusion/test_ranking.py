"""The order of open positions, strict and drawn."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.diffusion.ranking import perturb, ranks

seeds = st.integers(0, 10**6)


@settings(deadline=None)
@given(seed=seeds)
def test_ranks_follow_the_score_and_ties_the_position(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    score = torch.randint(0, 4, (4, 9), generator=generator).float()
    is_open = torch.rand(4, 9, generator=generator) < 0.6
    for s, o, rank in zip(score.tolist(), is_open.tolist(), ranks(score, is_open), strict=True):
        order = sorted(range(9), key=lambda i: (not o[i], -s[i] if o[i] else 0, i))
        assert rank[torch.tensor(order)].tolist() == list(range(9))


def test_temperature_zero_leaves_scores_as_they_are() -> None:
    score, uniform = torch.rand(2, 5), torch.zeros(2, 5)
    assert torch.equal(perturb(score, torch.zeros(2), uniform), score)


@settings(deadline=None)
@given(seed=seeds)
def test_a_cold_draw_keeps_the_order_of_the_scores(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    score = torch.stack([torch.randperm(6, generator=generator) for _ in range(5)]) / 6
    uniform = torch.rand(5, 6, generator=generator)
    noisy = perturb(score, torch.full((5,), 1e-4), uniform)
    assert torch.equal(noisy.argsort(dim=1), score.argsort(dim=1))


def test_drawn_ranks_are_draws_without_replacement_by_softmax() -> None:
    """Dream's alg_temp draws positions one after another by softmax(score / temperature)."""
    n, temperature = 200_000, 0.5
    score = torch.tensor([0.9, 0.2, 0.5])
    uniform = torch.rand(n, 3, generator=torch.Generator().manual_seed(0))
    noisy = perturb(score.expand(n, 3), torch.full((n,), temperature), uniform)
    first, second = noisy.argsort(dim=1, descending=True)[:, :2].unbind(1)
    probs = (score / temperature).softmax(0)
    for i, j in itertools.permutations(range(3), 2):
        expected = probs[i] * probs[j] / (1 - probs[i])
        share = ((first == i) & (second == j)).float().mean()
        # five standard deviations
        assert abs(share - expected) < 5 * (expected / n) ** 0.5


def test_the_edges_of_the_unit_interval_give_finite_scores() -> None:
    uniform = torch.tensor([[0.0, 1 - 2**-24]])
    assert perturb(torch.zeros(1, 2), torch.ones(1), uniform).isfinite().all()
