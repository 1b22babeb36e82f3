"""Prefix store: the keys and values of prompts' beginnings, piece by piece, as `PrefixIndex` says.

Shapes: n positions of a piece, H heads, E head size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from raydiff.engine.plan import PrefixPlan
from raydiff.engine.prefix import Piece
from raydiff.engine.slab import Slab
from raydiff.models.denoiser import Cache


class PrefixStore:
    """Copies of rows' caches by key: a tensor [layers, 2, 1, H, n, E] a group."""

    def __init__(self) -> None:
        self._kept: dict[int, Cache] = {}

    def put(self, pieces: Iterable[Piece], row: Cache) -> None:
        """Copy pieces out of a row's cache, [layers, 2, 1, H, N, E] a group."""
        for piece in pieces:
            span = slice(piece.begin, piece.end)
            # a view would keep all of the row, and change with it
            self._kept[piece.key] = tuple(kv[:, :, :, :, span].clone() for kv in row)

    def get(self, pieces: Sequence[Piece]) -> Cache:
        """The cache of pieces that follow each other, from the prompt's first token on."""
        found = [self._kept[piece.key] for piece in pieces]
        return tuple(torch.cat(parts, dim=4) for parts in zip(*found, strict=True))

    def fill(self, slab: Slab, rows: Sequence[int], prefix: PrefixPlan) -> None:
        """Put what a plan takes over into its rows."""
        for row, pieces in zip(rows, prefix.taken, strict=True):
            if pieces:
                slab.write([row], self.get(pieces), [0])

    def update(self, slab: Slab, rows: Sequence[int], prefix: PrefixPlan) -> None:
        """Drop and copy what a plan says, once its rows are encoded."""
        self.drop(prefix.evicted)
        for row, pieces in zip(rows, prefix.kept, strict=True):
            if pieces:
                self.put(pieces, slab.read([row], pieces[-1].end))

    def drop(self, keys: Iterable[int]) -> None:
        """Free the tensors of keys."""
        for key in keys:
            self._kept.pop(key, None)

    def clear(self) -> bool:
        """Free everything; whether there was anything."""
        had_any = bool(self._kept)
        self._kept.clear()
        return had_any

    @property
    def held_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(kv.numel() * kv.element_size() for kept in self._kept.values() for kv in kept)
