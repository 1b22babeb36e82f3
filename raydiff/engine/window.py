"""Window: which positions a forward computes, and which cached ones they see. Numpy only.

All indices are sequence indices: they count from the prompt's first token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raydiff.decoding import Decoding
from raydiff.engine.frame import Frame
from raydiff.spec import ModelSpec

RowCache = Literal["none", "exact", "prefix", "dual"]


@dataclass(frozen=True, kw_only=True)
class Window:
    """Positions [begin, end) are computed; cached ones before `begin` are seen, and those in
    [end, until)."""

    begin: int
    end: int
    before: int = 0
    """Cached positions seen before the window: all of [0, before)."""
    until: int = 0
    """Where cached positions after the window end; at most `end`: none."""
    blind_first: bool = False
    """The first position is the last of the context: it sees only what lies before it."""
    store: bool = False
    """The forward's keys and values become the cache."""


class Windows:
    """How the windows of one request follow each other (Fast-dLLM, Wu et al. 2025, for prefix and
    dual; dInfer for the neighbours recomputed beside a block).
    """

    def __init__(self, spec: ModelSpec, decoding: Decoding) -> None:
        self._full = spec.attention == "full"
        self._shift = int(spec.shift)
        self._refresh_steps = decoding.refresh_steps
        self._neighbours = decoding.window or 0
        self.cache: RowCache = "none" if self._full or decoding.cache == "none" else "exact"
        if decoding.cache == "prefix" or decoding.cache == "dual":
            self.cache = decoding.cache

    def next(self, frame: Frame, block: slice, total: int, step: int) -> Window:
        """The window of the `step`th forward of a block of the frame; `total` is the length of
        prompt and generated text.
        """
        if not self._full:
            begin = max(0, frame.start - self._shift)
            blind = begin < frame.start
            return Window(begin=begin, end=frame.end, before=begin, blind_first=blind)
        if self.cache == "none" or self._refreshes(step):
            return Window(begin=0, end=total, store=self.cache != "none")
        begin = max(0, frame.start + block.start - self._neighbours - self._shift)
        if self.cache == "prefix":
            return Window(begin=begin, end=total, before=begin)
        end = min(total, frame.start + block.stop + self._neighbours)
        return Window(begin=begin, end=end, before=begin, until=total)

    def _refreshes(self, step: int) -> bool:
        return step % self._refresh_steps == 0 if self._refresh_steps else step == 0
