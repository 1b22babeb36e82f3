"""How many bytes a request takes while it is denoised, and how many there are.

Knows no torch: sizes follow from the spec and the dtype's width.
"""

from __future__ import annotations

from dataclasses import dataclass

from raydiff.engine.canvas import Canvas
from raydiff.spec import ModelSpec

CONTEXT_BUCKETS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Rows of one bucket share forwards. None below 256: fuller forwards outweigh the memory."""

USED_STEP = 32
"""Cached positions are read in multiples of this, so that shapes repeat."""

LOGITS_PER_ROW = 2**20
"""Logits that one row of a full batch holds at once at most: they are computed in parts."""


def context_bucket(positions: int) -> int:
    """The smallest bucket that holds `positions`; beyond the largest, the exact number."""
    return next((b for b in CONTEXT_BUCKETS if b >= positions), positions)


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes per position of a model at one dtype."""

    spec: ModelSpec
    dtype_bytes: int

    def request_bytes(self, canvas: Canvas) -> int:
        """Cache, hidden states, attention mask and logits that a canvas adds to the peak.

        Logits exist three times over in fp32 (raw, exponentials, sorted), but never more at once
        than one part of them; hidden states of one layer and its feed-forward part are about
        twelve times the model's width.
        """
        frame = canvas.geometry.frame_length
        context = context_bucket(canvas.reserved_context)
        whole = self.spec.attention == "full" or not canvas.cached
        computed = max(canvas.prompt_length + (frame if whole else 0), context if whole else frame)
        per_position = self.spec.cache_bytes_per_position(self.dtype_bytes)
        cache = context * per_position if canvas.cached else 0
        hidden = computed * self.spec.hidden_size * 12
        mask = computed * (context + frame) * 2
        logits = min(canvas.block_length * self.spec.vocab_size, LOGITS_PER_ROW) * 3 * 4
        return cache + (hidden + mask) * self.dtype_bytes + logits


class Budget:
    """Bytes that admitted requests may take together."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.held_bytes = 0
        self._held: dict[str, int] = {}

    def fits(self, needed_bytes: int) -> bool:
        """A request alone always fits: only a forward can tell that it does not."""
        return not self._held or self.held_bytes + needed_bytes <= self.total_bytes

    def hold(self, request_id: str, needed_bytes: int) -> None:
        self._held[request_id] = needed_bytes
        self.held_bytes += needed_bytes

    def release(self, request_id: str) -> None:
        self.held_bytes -= self._held.pop(request_id, 0)

    def halve(self) -> None:
        """A forward ran out of memory: what was held was too much."""
        self.total_bytes = max(1, min(self.total_bytes, self.held_bytes) // 2)
