"""Commit rules as pure functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raydiff.diffusion.commit import (
    commit_mask,
    end_run,
    entropy_mask,
    factor_mask,
    hierarchical_mask,
)

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
INF = float("inf")


def rows(seed: int, count: int = 5, length: int = 12) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.rand(count, length, generator=generator)
    open_RL = torch.rand(count, length, generator=generator) < 0.6
    open_RL[:, 3] = True
    return confidence, open_RL


def apply(confidence: Tensor, open_RL: Tensor, at_least: int, threshold: float) -> Tensor:
    count = len(confidence)
    return commit_mask(
        confidence, open_RL, torch.full((count,), at_least), torch.full((count,), threshold)
    )


seeds = st.integers(0, 10**6)
units = st.floats(0, 1, width=32)
factors = st.floats(2**-7, 5, width=32)
bounds = st.floats(0, 4, width=32)


@settings(deadline=None)
@given(seed=seeds, quota=st.integers(1, 14))
def test_a_quota_commits_that_many_of_the_most_confident(seed: int, quota: int) -> None:
    confidence, open_RL = rows(seed)
    commit = apply(confidence, open_RL, quota, INF)
    assert not (commit & ~open_RL).any()
    assert commit.sum(1).tolist() == open_RL.sum(1).clamp(max=quota).tolist()
    for c, o, k in zip(confidence, open_RL, commit, strict=True):
        left = c[o & ~k]
        assert not len(left) or left.max() <= c[k].min()


@settings(deadline=None)
@given(seed=seeds, low=units, high=units)
def test_a_higher_threshold_commits_a_subset(seed: int, low: float, high: float) -> None:
    low, high = min(low, high), max(low, high)
    confidence, open_RL = rows(seed)
    assert not (apply(confidence, open_RL, 1, high) & ~apply(confidence, open_RL, 1, low)).any()


@settings(deadline=None)
@given(seed=seeds)
def test_threshold_above_one_is_one_token_a_step_and_zero_is_one_step(seed: int) -> None:
    confidence, open_RL = rows(seed)
    assert (apply(confidence, open_RL, 1, 1.01).sum(1) == 1).all()
    assert torch.equal(apply(confidence, open_RL, 1, 0.0), open_RL)


@settings(deadline=None)
@given(seed=seeds, quota=st.integers(1, 5), threshold=units)
def test_a_row_commits_the_same_alone(seed: int, quota: int, threshold: float) -> None:
    confidence, open_RL = rows(seed)
    together = apply(confidence, open_RL, quota, threshold)
    for i in range(len(confidence)):
        alone = apply(confidence[i : i + 1], open_RL[i : i + 1], quota, threshold)
        assert torch.equal(together[i], alone[0])


def test_ties_go_to_the_lower_position() -> None:
    commit = apply(torch.full((1, 5), 0.5), torch.tensor([[False, True, True, True, True]]), 2, INF)
    assert commit.tolist() == [[False, True, True, False, False]]


def test_a_finished_row_commits_nothing() -> None:
    assert not apply(torch.ones(1, 4), torch.zeros(1, 4, dtype=torch.bool), 3, 0.0).any()


def test_an_end_run_must_reach_the_end_of_the_block() -> None:
    confidence = torch.full((1, 5), 0.95)
    open_RL = torch.ones(1, 5, dtype=torch.bool)
    broken = torch.tensor([[True, True, False, True, True]])
    assert end_run(broken, confidence, open_RL, 0.9).tolist() == [[False, False, False, True, True]]
    confidence[0, 4] = 0.5
    assert not end_run(broken, confidence, open_RL, 0.9).any()


def test_closed_end_tokens_belong_to_the_run_but_commit_no_more() -> None:
    is_end = torch.tensor([[False, True, True, True]])
    open_RL = torch.tensor([[True, True, True, False]])
    confidence = torch.tensor([[0.9, 0.9, 0.9, 0.0]])
    assert end_run(is_end, confidence, open_RL, 0.8).tolist() == [[False, True, True, False]]


ONE = torch.tensor([1])


def every(value: float) -> Tensor:
    return torch.full((5,), value)


@settings(deadline=None)
@given(seed=seeds, factor=factors)
def test_a_factor_commits_the_published_prefix(seed: int, factor: float) -> None:
    """The i-th most confident needs 1 - factor / (i + 1); the first always commits."""
    confidence, open_RL = rows(seed)
    commit = factor_mask(confidence, open_RL, every(1).long(), every(factor))
    for c, o, chosen in zip(confidence, open_RL, commit, strict=True):
        ordered = c[o].sort(descending=True).values
        count = 1
        while count < len(ordered) and ordered[count] >= 1 - torch.tensor(factor) / (count + 2):
            count += 1
        assert not (chosen & ~o).any()
        assert c[chosen].sort(descending=True).values.tolist() == ordered[:count].tolist()


@settings(deadline=None)
@given(seed=seeds, low=factors, high=factors)
def test_a_larger_factor_commits_a_superset(seed: int, low: float, high: float) -> None:
    low, high = min(low, high), max(low, high)
    confidence, open_RL = rows(seed)
    fewer = factor_mask(confidence, open_RL, every(1).long(), every(low))
    more = factor_mask(confidence, open_RL, every(1).long(), every(high))
    assert not (fewer & ~more).any()


def test_the_last_rank_must_pass_its_own_need() -> None:
    """dInfer's factor rule commits the last position whatever its confidence."""
    confidence = torch.tensor([[0.99, 0.95, 0.1]])
    open_RL = torch.ones(1, 3, dtype=torch.bool)
    commit = factor_mask(confidence, open_RL, ONE, torch.tensor([1.0]))
    assert commit.tolist() == [[True, True, False]]


def test_a_factor_need_counts_from_two() -> None:
    """With factor 1 the second position needs 1 - 1/3, the third 1 - 1/4."""
    open_RL = torch.ones(1, 3, dtype=torch.bool)
    for second, third, expected in ((0.66, 0.1, 1), (0.67, 0.66, 2), (0.76, 0.76, 3)):
        confidence = torch.tensor([[0.9, second, third]])
        commit = factor_mask(confidence, open_RL, ONE, torch.tensor([1.0]))
        assert int(commit.sum()) == expected


@settings(deadline=None)
@given(seed=seeds, bound=bounds)
def test_an_entropy_bound_commits_a_prefix_of_the_entropy_order(seed: int, bound: float) -> None:
    """The longest whose summed entropy without its own last stays within the bound, never none."""
    entropy, open_RL = rows(seed)
    commit = entropy_mask(entropy, open_RL, every(1).long(), every(bound))
    for h, o, chosen in zip(entropy, open_RL, commit, strict=True):
        ordered = h[o].sort().values
        count = int(chosen.sum())
        assert not (chosen & ~o).any()
        assert h[chosen].sort().values.tolist() == ordered[:count].tolist()
        before = ordered.cumsum(0) - ordered
        assert count >= 1
        assert before[count - 1] <= bound + 1e-5
        assert count == len(ordered) or before[count] > bound - 1e-5


def test_an_entropy_bound_sums_over_positions() -> None:
    """SDAR's sums over the wrong axis, so that a row depends on the rows above it."""
    entropy = torch.tensor([[0.3, 0.1, 0.2, 0.4]]).repeat(3, 1)
    open_RL = torch.ones(3, 4, dtype=torch.bool)
    commit = entropy_mask(entropy, open_RL, torch.ones(3).long(), torch.tensor([0.0, 0.25, 0.35]))
    assert commit.sum(1).tolist() == [1, 2, 3]
    assert commit[2].tolist() == [True, True, True, False]


@settings(deadline=None)
@given(seed=seeds, low=bounds, high=bounds)
def test_a_larger_entropy_bound_commits_a_superset(seed: int, low: float, high: float) -> None:
    low, high = min(low, high), max(low, high)
    entropy, open_RL = rows(seed)
    fewer = entropy_mask(entropy, open_RL, every(1).long(), every(low))
    assert not (fewer & ~entropy_mask(entropy, open_RL, every(1).long(), every(high))).any()


@settings(deadline=None)
@given(seed=seeds, high=units, low=units)
def test_hierarchical_commits_the_best_of_each_run(seed: int, high: float, low: float) -> None:
    confidence, open_RL = rows(seed)
    commit = hierarchical_mask(confidence, open_RL, every(1).long(), every(high), every(low))
    for c, o, chosen in zip(confidence.tolist(), open_RL.tolist(), commit, strict=True):
        places = [i for i, is_open in enumerate(o) if is_open]
        runs: list[list[int]] = []
        for i in places:
            if runs and runs[-1][-1] == i - 1:
                runs[-1].append(i)
            else:
                runs.append([i])
        expected = {max(places, key=lambda i: c[i])}
        expected |= {best for run in runs if c[best := max(run, key=lambda i: c[i])] >= low}
        expected |= {i for i in places if c[i] >= high}
        assert set(chosen.nonzero()[:, 0].tolist()) == expected


def test_the_lower_of_equal_positions_is_a_runs_best() -> None:
    confidence = torch.full((1, 6), 0.5)
    open_RL = torch.tensor([[True, True, False, True, True, True]])
    high, low = torch.tensor([0.9]), torch.tensor([0.4])
    commit = hierarchical_mask(confidence, open_RL, ONE, high, low)
    assert commit.tolist() == [[True, False, False, True, False, False]]


@pytest.mark.parametrize("rule", [factor_mask, entropy_mask])
@settings(deadline=None)
@given(seed=seeds, least=st.integers(1, 14))
def test_a_step_limit_makes_rules_commit_more(rule: Rule, seed: int, least: int) -> None:
    """`at_least` positions commit, whatever their confidence."""
    values, open_RL = rows(seed)
    commit = rule(values, open_RL, every(least).long(), every(0.01))
    needed = open_RL.sum(1).clamp(max=least)
    assert (commit.sum(1) >= needed).all()
