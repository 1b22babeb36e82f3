"""Adaptive stopping of a sequence.

Shapes: R rows, W positions.
"""

from __future__ import annotations

from torch import Tensor


def settled(
    best_RW: Tensor,
    previous_RW: Tensor,
    entropy_RW: Tensor,
    open_RW: Tensor,
    stop_entropy_R: Tensor,
) -> Tensor:
    """(R,) whether a row may stop: at every open position the most likely token is that of the
    forward before, and the mean entropy of these positions is below `stop_entropy_R` nats.

    `previous_RW` is -1 at a block's first forward, so that none stops there; a bound of NaN never
    stops. Source: DiffusionGemma's stopping rule.
    """
    stable_R = ((best_RW == previous_RW) | ~open_RW).all(dim=1)
    # in fp64, so that the padding of a batch does not show in how a sum rounds
    total_R = entropy_RW.double().masked_fill(~open_RW, 0).sum(dim=1)
    return stable_R & (total_R < stop_entropy_R.double() * open_RW.sum(dim=1))
