"""Commit rules: which open positions become final after a forward.

Shapes: R rows, L positions of the block. Every rule looks at one row at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor


def commit_mask(
    confidence_RL: Tensor, open_RL: Tensor, at_least_R: Tensor, threshold_R: Tensor
) -> Tensor:
    """Open positions to commit: the `at_least_R` most confident, and all at the threshold.

    With an infinite threshold this is the quota rule of LLaDA (Nie et al. 2025, low-confidence
    remasking); with `at_least_R` = 1 it is the threshold rule of Fast-dLLM (Wu et al. 2025).
    Ties go to the lower position. Returns a bool tensor (R, L), a subset of `open_RL`.
    """
    score_RL = confidence_RL.masked_fill(~open_RL, float("-inf"))
    order_RL = score_RL.argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(open_RL.shape[1], device=open_RL.device).expand_as(order_RL)
    rank_RL = torch.empty_like(order_RL).scatter_(1, order_RL, places)
    chosen_RL = (rank_RL < at_least_R[:, None]) | (confidence_RL >= threshold_R[:, None])
    return chosen_RL & open_RL


def end_run(is_end_RL: Tensor, confidence_RL: Tensor, open_RL: Tensor, threshold: float) -> Tensor:
    """Open positions of the run of confident end tokens that closes the block.

    `is_end_RL` tells where the candidate, or at closed positions the token, is an end token.
    Such a run costs no step: once it is sure that the text ends before it, nothing in it can
    count. Returns a bool tensor (R, L), a subset of `open_RL`.
    """
    sure_RL = is_end_RL & (~open_RL | (confidence_RL >= threshold))
    run_RL = sure_RL.flip(1).long().cumprod(dim=1).flip(1).bool()
    return run_RL & open_RL
