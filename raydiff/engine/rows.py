"""Row: one canvas as the next forward sees it. Numpy only.

Shapes: W positions of the row's own window, F of its frame, N of its context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from raydiff.engine.asking import live
from raydiff.engine.canvas import Canvas
from raydiff.engine.extent import model_position, sequence, window
from raydiff.engine.frame import Bools, Ints

T = TypeVar("T", bound=np.generic)


class Row:
    """A canvas, the window of its next forward, and what stands in it."""

    def __init__(self, canvas: Canvas) -> None:
        self.canvas = canvas
        self.window = window(canvas)
        frame, length = canvas.frame, self.window.end - self.window.begin
        self.frame_at = frame.start - self.window.begin
        """Place of the frame's first position in the window; negative: before it."""
        self.live: Bools = np.ones(length, dtype=np.bool_)
        begin, end = max(0, -self.frame_at), self.window.end - frame.start
        self.live[max(0, self.frame_at) :] = live(canvas)[begin:end]
        self.tokens: Ints = sequence(canvas, self.window.begin, self.window.end)

    @property
    def width(self) -> int:
        """Positions up to the last live one: what a forward of this row alone would take."""
        return int(np.flatnonzero(self.live)[-1]) + 1

    def spread(self, values_F: npt.NDArray[T], fill: T | bool | float) -> npt.NDArray[T]:
        """Values (F, or ..., F) of the frame's positions at their places in the window (..., W)."""
        if self.frame_at == 0 and values_F.shape[-1] == len(self.tokens):
            return values_F
        spread = np.full((*values_F.shape[:-1], len(self.tokens)), fill, dtype=values_F.dtype)
        part = values_F[..., max(0, -self.frame_at) :]
        place = spread[..., max(0, self.frame_at) :]
        size = min(part.shape[-1], place.shape[-1])
        place[..., :size] = part[..., :size]
        return spread

    def revisable(self) -> Bools:
        """(F,) closed positions that the row's policy may change."""
        canvas = self.canvas
        return canvas.revisable() if canvas.revising else np.zeros(len(canvas.frame), np.bool_)

    @property
    def context(self) -> Ints:
        """(N,) the tokens before the frame, all of which their cache depends on."""
        return sequence(self.canvas, 0, self.canvas.frame.start)

    def context_positions(self) -> Ints:
        """(N,) their model positions."""
        at = np.arange(self.canvas.frame.start, dtype=np.int64)
        prompt = self.canvas.prompt_length
        return np.where(at < prompt, at, model_position(self.canvas, 0) + at)

    def unconditional(self) -> UnconditionalRow:
        """The same row without its prompt, for classifier-free guidance."""
        return UnconditionalRow(self.canvas)


class UnconditionalRow(Row):
    """A row whose prompt is hidden behind mask tokens (LLaDA, Nie et al. 2025, A.2)."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(canvas)
        self.tokens = self._hidden(self.tokens, self.window.begin)

    @property
    def context(self) -> Ints:
        return self._hidden(super().context, 0)

    def _hidden(self, tokens: Ints, begin: int) -> Ints:
        hidden = tokens.copy()
        hidden[: max(0, self.canvas.prompt_length - begin)] = self.canvas.spec.mask_id
        return hidden


def stack(rows: Sequence[npt.NDArray[T]], width: int, fill: bool | float) -> npt.NDArray[T]:
    """(R, ..., width) rows cut to `width` positions, or padded with `fill`."""
    first = rows[0]
    length = first.shape[-1]
    if length >= width and all(row.shape[-1] == length for row in rows):
        return np.stack(rows)[..., :width]
    padded = np.full((len(rows), *first.shape[:-1], width), fill, dtype=first.dtype)
    for i, row in enumerate(rows):
        size = min(width, row.shape[-1])
        padded[i, ..., :size] = row[..., :size]
    return padded


def gather(
    values_W: npt.NDArray[T], frame_at: int, length: int, fill: bool | float
) -> npt.NDArray[T]:
    """(length,) the frame's part of a row's window; `fill` where the window does not reach."""
    if frame_at == 0 and len(values_W) == length:
        return values_W
    frame_F = np.full(length, fill, dtype=values_W.dtype)
    part = values_W[max(0, frame_at) :]
    place = frame_F[max(0, -frame_at) :]
    size = min(len(part), len(place))
    place[:size] = part[:size]
    return frame_F
