"""Commit rules: which open positions become final after a forward.

Shapes: R rows, L positions of the block. Every rule looks at one row at a time, and ties go to
the lower position.
"""

from __future__ import annotations

import torch
from torch import Tensor

from raydiff.diffusion.ranking import ranks


def commit_mask(
    confidence_RL: Tensor, open_RL: Tensor, at_least_R: Tensor, threshold_R: Tensor
) -> Tensor:
    """Open positions to commit: the `at_least_R` most confident, and all at the threshold.

    With an infinite threshold this is the quota rule of LLaDA (Nie et al. 2025, low-confidence
    remasking); with `at_least_R` = 1 it is the threshold rule of Fast-dLLM (Wu et al. 2025).
    Ties go to the lower position. Returns a bool tensor (R, L), a subset of `open_RL`.
    """
    rank_RL = ranks(confidence_RL, open_RL)
    chosen_RL = (rank_RL < at_least_R[:, None]) | (confidence_RL >= threshold_R[:, None])
    return chosen_RL & open_RL


def factor_mask(
    confidence_RL: Tensor, open_RL: Tensor, at_least_R: Tensor, factor_R: Tensor
) -> Tensor:
    """The longest run of most confident positions that Fast-dLLM's factor allows.

    The i-th most confident (from 1) needs a confidence of at least 1 - factor / (i + 1), as the
    published code has it; the first always commits (Wu et al. 2025). The need grows
    with i while the confidence falls, so what passes is a prefix.
    """
    rank_RL = ranks(confidence_RL, open_RL)
    need_RL = 1 - factor_R[:, None] / (rank_RL + 2)
    chosen_RL = (confidence_RL >= need_RL) | (rank_RL < at_least_R.clamp(min=1)[:, None])
    return chosen_RL & open_RL


def entropy_mask(
    entropy_RL: Tensor, open_RL: Tensor, at_least_R: Tensor, bound_R: Tensor
) -> Tensor:
    """The longest run of least uncertain positions within an entropy bound.

    Positions are taken by ascending entropy as long as the summed entropy of those before is at
    most `bound_R` nats; with a bound of at least 0 there is always one. Source: EB-sampler
    (Ben-Hamu et al. 2025); DiffusionGemma accepts tokens by it.
    """
    rank_RL = ranks(-entropy_RL, open_RL)
    usable_RL = entropy_RL.clamp(min=0).masked_fill(~open_RL, 0)
    sorted_RL = torch.empty_like(usable_RL).scatter_(1, rank_RL, usable_RL)
    before_RL = sorted_RL.cumsum(dim=1).roll(1, dims=1)
    before_RL[:, 0] = 0
    within_RL = before_RL.gather(1, rank_RL) <= bound_R[:, None]
    return (within_RL | (rank_RL < at_least_R[:, None])) & open_RL


def hierarchical_mask(
    confidence_RL: Tensor,
    open_RL: Tensor,
    at_least_R: Tensor,
    threshold_R: Tensor,
    low_threshold_R: Tensor,
) -> Tensor:
    """The threshold rule, and of each run of open positions the best one at the low threshold.

    Commits are so spread over the block, where each splits a run in two. Source: dInfer
    (arXiv 2510.08666), hierarchical decoding.
    """
    rank_RL = ranks(confidence_RL, open_RL)
    first_RL = open_RL.clone()
    first_RL[:, 1:] &= ~open_RL[:, :-1]
    run_RL = first_RL.cumsum(dim=1) * open_RL
    worst = open_RL.shape[1]
    slots = torch.full((open_RL.shape[0], worst + 1), worst, device=open_RL.device)
    best_RL = slots.scatter_reduce(1, run_RL, rank_RL, "amin").gather(1, run_RL)
    peak_RL = (rank_RL == best_RL) & (confidence_RL >= low_threshold_R[:, None])
    sure_RL = confidence_RL >= threshold_R[:, None]
    return (peak_RL | sure_RL | (rank_RL < at_least_R.clamp(min=1)[:, None])) & open_RL


def end_run(is_end_RL: Tensor, confidence_RL: Tensor, open_RL: Tensor, threshold: float) -> Tensor:
    """Open positions of the run of confident end tokens that closes the block.

    `is_end_RL` tells where the candidate, or at closed positions the token, is an end token.
    Such a run costs no step: once it is sure that the text ends before it, nothing in it can
    count. Returns a bool tensor (R, L), a subset of `open_RL`.
    """
    sure_RL = is_end_RL & (~open_RL | (confidence_RL >= threshold))
    run_RL = sure_RL.flip(1).long().cumprod(dim=1).flip(1).bool()
    return run_RL & open_RL
