"""Self-speculation: how much of a draft the model's own causal pass confirms.

Shapes: R rows, W positions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def confirmed(draft_RW: Tensor, verified_RW: Tensor, open_RW: Tensor) -> Tensor:
    """Open positions whose verified token is final: up to the first that differs, inclusive.

    `verified_RW` is what the causal pass predicts at each position given the draft before it, so
    it is right wherever the draft before was. Closed positions confirm themselves. Committing
    the verified tokens there equals greedy autoregressive decoding. Returns (R, W) bool.
    """
    agrees_RW = (draft_RW == verified_RW) | ~open_RW
    before_RW = torch.ones_like(agrees_RW)
    before_RW[:, 1:] = agrees_RW[:, :-1]
    return before_RW.long().cumprod(dim=1).bool() & open_RW
