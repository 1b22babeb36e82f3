"""How many bytes a request takes while it is denoised, and how many there are.

Knows no torch: sizes follow from the spec and the dtype's width.
"""

from __future__ import annotations

from dataclasses import dataclass

from raydiff.engine.canvas import Canvas
from raydiff.engine.extent import reserved_context
from raydiff.request import GenerationRequest
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
        context = context_bucket(reserved_context(canvas))
        whole = self.spec.attention == "full" or not canvas.cached
        computed = max(canvas.prompt_length + (frame if whole else 0), context if whole else frame)
        block = canvas.block_length
        return self._bytes(computed, frame, block, context, context if canvas.cached else 0)

    def request_bytes_bound(self, request: GenerationRequest) -> int:
        """No less than `request_bytes` of the request's canvas, without making one."""
        d = self.spec.resolve(request.decoding)
        assert d.max_tokens is not None
        frame = max(d.max_tokens, self.spec.block_length)
        computed = len(request.prompt_ids) + d.max_tokens + frame
        context = context_bucket(computed)
        return self._bytes(max(computed, context), frame, frame, context, context)

    def _bytes(self, computed: int, frame: int, block: int, context: int, cached: int) -> int:
        cache = cached * self.spec.cache_bytes_per_position(self.dtype_bytes)
        hidden = computed * self.spec.hidden_size * 12
        mask = computed * (context + frame) * 2
        logits = min(block * self.spec.vocab_size, LOGITS_PER_ROW) * 3 * 4
        return cache + (hidden + mask) * self.dtype_bytes + logits


GROW_AFTER_S = 60.0
"""Seconds of forwards without a shortage, after which a budget that was cut grows again."""
LONGEST_GROW_AFTER_S = 3600.0
GROWTH = 1 / 16
"""Of the whole budget, at a time."""


class Budget:
    """Bytes that admitted requests may take together."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.whole_bytes = total_bytes
        """What it was before any shortage."""
        self.held_bytes = 0
        self._held: dict[str, int] = {}
        self._quiet_s = 0.0
        self._grow_after_s = GROW_AFTER_S

    def fits(self, needed_bytes: int, freed_bytes: int = 0) -> bool:
        """Whether there is room, once `freed_bytes` are released. A request alone always fits:
        only a forward can tell that it does not."""
        held = self.held_bytes - freed_bytes
        return held <= 0 or held + needed_bytes <= self.total_bytes

    def held_by(self, request_id: str) -> int:
        """Bytes of one request."""
        return self._held.get(request_id, 0)

    def hold(self, request_id: str, needed_bytes: int) -> None:
        self._held[request_id] = needed_bytes
        self.held_bytes += needed_bytes

    def release(self, request_id: str) -> None:
        self.held_bytes -= self._held.pop(request_id, 0)

    def halve(self) -> None:
        """A forward ran out of memory: what was held was too much."""
        if self.total_bytes < self.whole_bytes:  # it had not long recovered
            self._grow_after_s = min(LONGEST_GROW_AFTER_S, 2 * self._grow_after_s)
        self.total_bytes = max(1, min(self.total_bytes, self.held_bytes) // 2)
        self._quiet_s = 0.0

    def ran(self, seconds: float) -> None:
        """A forward had memory enough: in time, a budget that was cut grows by a part."""
        self._quiet_s += seconds
        if self.total_bytes < self.whole_bytes and self._quiet_s >= self._grow_after_s:
            more = max(1, int(self.whole_bytes * GROWTH))
            self.total_bytes = min(self.whole_bytes, self.total_bytes + more)
            self._quiet_s = 0.0
