"""Slab: the caches of all rows of one shape, dense, so that a full batch needs no copy.

Shapes: C capacity in rows, N context positions, H heads, E head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from raydiff.spec import ModelSpec

FIRST_ROWS = 8


class Slab:
    """Rows 0..n-1 are in use; a row that leaves is replaced by the last one."""

    def __init__(
        self, spec: ModelSpec, context: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._kv = torch.zeros(
            (spec.layers, 2, FIRST_ROWS, spec.heads, context, spec.head_dim),
            dtype=dtype,
            device=device,
        )
        self._ids: list[str] = []
        self._index: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._index

    def rows(self, request_ids: Sequence[str]) -> list[int]:
        """Row of each request."""
        return [self._index[request_id] for request_id in request_ids]

    def reserve(self, request_ids: Sequence[str]) -> None:
        """Give each request that has none a row."""
        for request_id in request_ids:
            if request_id not in self._index:
                self._index[request_id] = len(self._ids)
                self._ids.append(request_id)
        self._grow(len(self._ids))

    def write(self, rows: Sequence[int], kv: Tensor, at: Sequence[int]) -> None:
        """Store `kv` (layers, 2, R, H, n, E) into `rows`, each from its position in `at`."""
        width = kv.shape[4]
        for i, (row, start) in enumerate(zip(rows, at, strict=True)):
            fits = min(width, self._kv.shape[4] - start)  # the rest is padding
            self._kv[:, :, row, :, start : start + fits] = kv[:, :, i, :, :fits]

    def read(self, rows: Sequence[int], used: int) -> Tensor:
        """(layers, 2, R, H, used, E): a view if `rows` are all rows in order, else a copy."""
        kv = self._kv[:, :, :, :, :used]
        if list(rows) == list(range(len(self._ids))):
            return kv[:, :, : len(self._ids)]
        return kv[:, :, torch.as_tensor(rows, device=kv.device)]

    def release(self, request_id: str) -> None:
        """Free a request's row at once."""
        row = self._index.pop(request_id)
        last_id = self._ids.pop()
        if last_id != request_id:
            self._kv[:, :, row] = self._kv[:, :, len(self._ids)]
            self._ids[row] = last_id
            self._index[last_id] = row

    def _grow(self, rows: int) -> None:
        layers, two, capacity, heads, context, size = self._kv.shape
        if rows <= capacity:
            return
        while capacity < rows:
            capacity *= 2
        larger = self._kv.new_zeros((layers, two, capacity, heads, context, size))
        larger[:, :, : self._kv.shape[2]] = self._kv
        self._kv = larger
