"""Packing: computing only the live positions of a padded batch.

Everything but attention works on one position at a time, so it runs over the live positions alone,
whatever the rows' lengths. Shapes: B rows, L padded length, M live positions, X any width.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Packing:
    """Moves between [B, L, X] and the [M, X] of its live positions."""

    def __init__(self, rows: int, length: int, live_BL: Tensor | None) -> None:
        """`live_BL` is bool; None means that all positions are live."""
        self._rows, self._length = rows, length
        self._index_M: Tensor | None = None
        if live_BL is not None and not bool(live_BL.all()):
            self._index_M = live_BL.flatten().nonzero()[:, 0]

    def pack(self, padded_BLX: Tensor) -> Tensor:
        """The live positions, row by row."""
        flat_NX = padded_BLX.reshape(self._rows * self._length, *padded_BLX.shape[2:])
        return flat_NX if self._index_M is None else flat_NX.index_select(0, self._index_M)

    def spread(self, packed_MX: Tensor) -> Tensor:
        """Back to padded rows; positions that are not live become zero."""
        if self._index_M is not None:
            padded_NX = packed_MX.new_zeros((self._rows * self._length, packed_MX.shape[1]))
            packed_MX = torch.index_copy(padded_NX, 0, self._index_M, packed_MX)
        return packed_MX.view(self._rows, self._length, -1)
