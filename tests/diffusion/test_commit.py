"""Commit rules as pure functions."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raydiff.diffusion.commit import commit_mask, end_run

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
@given(seed=seeds, low=st.floats(0, 1), high=st.floats(0, 1))
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
@given(seed=seeds, quota=st.integers(1, 5), threshold=st.floats(0, 1))
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
