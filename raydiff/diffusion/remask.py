"""ReMDM: committed positions may be hidden again (Wang et al. 2025), log-linear noise.

Shapes: R rows, W positions. A *share* is the expected share of masked positions, 1 - alpha.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_TINY = torch.finfo(torch.float32).tiny


class Shares(NamedTuple):
    """Masked shares before and after a step, (R,) each."""

    before: Tensor
    after: Tensor


def most(shares: Shares) -> Tensor:
    """(R,) the largest chance of hiding that leaves a valid reverse process."""
    return (shares.after / (1 - shares.before).clamp(min=_TINY)).clamp(max=1)


def cap(shares: Shares, eta_R: Tensor) -> Tensor:
    """(R,) chance of hiding: eta, as far as allowed (the "max-capped" schedule)."""
    return torch.minimum(eta_R, most(shares))


def rescale(shares: Shares, eta_R: Tensor) -> Tensor:
    """(R,) chance of hiding: eta of what is allowed (the "rescaled" schedule)."""
    return eta_R * most(shares)


def by_confidence(shares: Shares, commit_confidence_RW: Tensor, revisable_RW: Tensor) -> Tensor:
    """(R, W) chance of hiding: what is allowed, shared out by softmax(-confidence at commit).

    The "confidence-based" schedule. Positions that are not revisable have none of it.
    """
    score_RW = (-commit_confidence_RW).masked_fill(~revisable_RW, float("-inf"))
    share_RW = score_RW.softmax(dim=1).masked_fill(~revisable_RW, 0)
    return share_RW * most(shares)[:, None]


def loop_share(time_R: Tensor, begin_R: Tensor, end_R: Tensor, alpha_R: Tensor) -> Tensor:
    """(R,) masked share at a time if between `begin_R` and `end_R` the share `alpha_R` of
    positions stays committed (the "loop" schedule): linear before and after, 0 at time 0."""
    before_R = 1 - (1 - time_R) * alpha_R / (1 - begin_R).clamp(min=_TINY)
    after_R = (1 - alpha_R) * time_R / end_R.clamp(min=_TINY)
    rest_R = torch.where(time_R <= end_R, after_R, 1 - alpha_R)
    return torch.where(time_R > begin_R, before_R, rest_R)


def step(
    open_RW: Tensor,
    revisable_RW: Tensor,
    shares: Shares,
    hide_RW: Tensor,
    uniform_RW: Tensor,
) -> tuple[Tensor, Tensor]:
    """Which open positions to commit, and which committed ones to hide, as (R, W) bool masks.

    `hide_RW` is the paper's sigma, also at open positions, whose chance of staying masked is
    (share after - sigma * (1 - share before)) / share before. Without hiding it is that of MDLM.
    """
    kept_RW = shares.after[:, None] - hide_RW * (1 - shares.before)[:, None]
    stay_RW = kept_RW / shares.before.clamp(min=_TINY)[:, None]
    return (uniform_RW >= stay_RW) & open_RW, (uniform_RW < hide_RW) & revisable_RW
