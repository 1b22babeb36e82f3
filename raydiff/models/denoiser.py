"""The Denoiser protocol: what the engine and the trainer need of a network.

Shapes: B rows, L new positions, N cached positions, K = N + L keys, M picked positions, D hidden
size, V vocabulary. A cache is one tensor [layers, 2 (keys, values), B, heads, N, head_dim].
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from raydiff.spec import ModelSpec


class Denoiser(Protocol):
    """A bidirectional network over new positions that may also attend to cached ones."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def cache_bytes_per_position(self) -> int:
        """Bytes that one cached position of one row takes."""
        ...

    def forward(
        self,
        tokens_BL: Tensor,
        positions_BL: Tensor,
        mask_BLK: Tensor | None,
        past: Tensor | None,
        want_kv: bool,
        live_BL: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [B, L, D] of the new positions and, when wanted, their cache (never
        `past`'s part).

        `mask_BLK` is bool, True where a new position may attend to a key (cached keys first, then
        new ones); None lets all attend to all. `past` is read, never changed. Where `live_BL` is
        False nothing is computed and the hidden state is zero; the mask must hide such keys.
        """
        ...

    def encode(
        self,
        tokens_BL: Tensor,
        positions_BL: Tensor,
        mask_BLK: Tensor | None,
        past: Tensor | None,
        live_BL: Tensor | None = None,
    ) -> Tensor:
        """The cache `forward` would return, for less work: the last layer is left unfinished."""
        ...

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """Logits [M, V] of picked hidden states."""
        ...
