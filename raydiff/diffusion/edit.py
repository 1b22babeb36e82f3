"""Editing of committed tokens after LLaDA2.1 (Ant Group 2026).

Shapes: R rows, W positions.
"""

from __future__ import annotations

from torch import Tensor


def edit_mask(
    tokens_RW: Tensor,
    candidates_RW: Tensor,
    confidence_RW: Tensor,
    revisable_RW: Tensor,
    threshold_R: Tensor,
) -> Tensor:
    """Committed positions where another token has at least the confidence `threshold_R`."""
    differs_RW = (candidates_RW != tokens_RW) & revisable_RW
    return differs_RW & (confidence_RW >= threshold_R[:, None])


def finished(
    was_open_RW: Tensor,
    open_RW: Tensor,
    edited_RW: Tensor,
    full_steps_R: Tensor,
    max_edits_R: Tensor,
) -> Tensor:
    """(R,) whether a block is done: full, and the last forward, which saw it full, changed
    nothing or was the last of `max_edits_R` such forwards.

    `full_steps_R` counts the forwards before this one that saw the block full.
    """
    saw_full_R = ~was_open_RW.any(dim=1)
    idle_R = saw_full_R & ~edited_RW.any(dim=1)
    spent_R = full_steps_R + saw_full_R >= max_edits_R
    return ~open_RW.any(dim=1) & (idle_R | spent_R)
