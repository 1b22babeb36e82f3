"""Slab: the caches of all rows of one shape, dense, so that a full batch needs no copy.

Shapes: C capacity in rows, N context positions, H heads, E head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from raydiff.models.denoiser import Cache
from raydiff.spec import ModelSpec

FIRST_ROWS = 8


class Slab:
    """Rows 0..n-1 are in use; a row that leaves is replaced by the last one."""

    def __init__(
        self, spec: ModelSpec, context: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._kv: Cache = tuple(
            torch.zeros(
                (group.layers, 2, FIRST_ROWS, group.heads, context, group.head_dim),
                dtype=dtype,
                device=device,
            )
            for group in spec.kv
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

    def write(self, rows: Sequence[int], kv: Cache, at: Sequence[int]) -> None:
        """Store `kv` ([layers, 2, R, H, n, E] a group) into `rows`, from positions `at` on."""
        for held, new in zip(self._kv, kv, strict=True):
            width = new.shape[4]
            for i, (row, start) in enumerate(zip(rows, at, strict=True)):
                fits = min(width, held.shape[4] - start)  # the rest is padding
                held[:, :, row, :, start : start + fits] = new[:, :, i, :, :fits]

    def read(self, rows: Sequence[int], used: int) -> Cache:
        """[layers, 2, R, H, used, E] a group: a view if `rows` are all rows in order."""
        whole = list(rows) == list(range(len(self._ids)))
        index = None if whole else torch.as_tensor(rows, device=self._kv[0].device)
        return tuple(
            kv[:, :, : len(self._ids), :, :used]
            if index is None
            else kv[:, :, :, :, :used][:, :, index]
            for kv in self._kv
        )

    def release(self, request_id: str) -> None:
        """Free a request's row at once."""
        row = self._index.pop(request_id)
        last_id = self._ids.pop()
        if last_id != request_id:
            for kv in self._kv:
                kv[:, :, row] = kv[:, :, len(self._ids)]
            self._ids[row] = last_id
            self._index[last_id] = row

    def _grow(self, rows: int) -> None:
        capacity = self._kv[0].shape[2]
        if rows <= capacity:
            return
        while capacity < rows:
            capacity *= 2
        self._kv = tuple(_widened(kv, capacity) for kv in self._kv)


def _widened(kv: Tensor, capacity: int) -> Tensor:
    larger = kv.new_zeros((*kv.shape[:2], capacity, *kv.shape[3:]))
    larger[:, :, : kv.shape[2]] = kv
    return larger
