"""Sliding windows: which cached keys and which new ones a layer of short reach reads.

Shapes: B rows, L new positions, N cached, K = N + L keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from raydiff.models.attention import mask_bias


@dataclass(frozen=True)
class Reach:
    """The keys that the layers of one kind read."""

    start: int
    """The first cached key that any row reads; earlier ones are left out."""
    bias: Tensor | None
    """Additive mask [B, 1, L, K] over cached keys from `start` on, then the new ones."""

    def cached(self, past: Tensor | None) -> Tensor | None:
        """What is read of a layer's cache [2, B, heads, N, head_dim]."""
        return past if past is None else past[:, :, :, self.start :]


def whole_reach(mask_BLK: Tensor | None, dtype: torch.dtype) -> Reach:
    """All the keys that the mask allows."""
    return Reach(0, mask_bias(mask_BLK, dtype))


def sliding_reach(
    mask_BLK: Tensor | None,
    positions_BL: Tensor,
    oldest_BL: Tensor,
    cached: int,
    dtype: torch.dtype,
) -> Reach:
    """Of the keys that the mask allows, those at positions not below `oldest_BL`.

    `oldest_BL` belongs to the query; cached key n is at position n, new keys at `positions_BL`.
    """
    start = min(max(int(oldest_BL.min()), 0), cached) if cached else 0
    past_N = torch.arange(start, cached, device=positions_BL.device)
    past_BN = past_N.expand(positions_BL.shape[0], -1)
    keys_BK = torch.cat([past_BN, positions_BL], dim=1)
    near_BLK = keys_BK[:, None, :] >= oldest_BL[:, :, None]
    mask_BLK = near_BLK if mask_BLK is None else mask_BLK[..., start:] & near_BLK
    return Reach(start, mask_bias(mask_BLK, dtype))
