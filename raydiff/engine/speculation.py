"""Self-speculation: a block-causal model drafts a block in both directions, then verifies the draft
in one causal pass. Numpy only.

What is verified is the model's own autoregressive prediction: the token at p, given all finished
frames and, inside the frame, only the tokens before p, each of which sees those before it. A model
with shifted logits predicts it at p - 1. Any other predicts it at a mask token at p, so its window
holds each position twice, as in training by block diffusion (BD3-LM, Arriola et al. 2025): first
masks, then clean tokens. A clean token sees clean ones up to itself; a mask sees the clean ones
before it, and itself.

Shapes: F positions of the frame, W places of the window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raydiff.engine.asking import drafted, verifies
from raydiff.engine.canvas import Canvas
from raydiff.engine.plan import Layout
from raydiff.engine.rows import Row


def row_of(canvas: Canvas) -> Row:
    """The canvas as its next forward sees it."""
    return VerifyingRow(canvas) if verifies(canvas) else Row(canvas)


class VerifyingRow(Row):
    """A row whose draft the next forward verifies."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(canvas)
        draft = drafted(canvas)
        if canvas.spec.shift:
            self.tokens = self.tokens.copy()
            self.tokens[self.frame_at :] = draft
            return
        masks = np.full(len(draft), canvas.spec.mask_id, dtype=np.int64)
        self.tokens = np.concatenate([masks, draft])
        self.live = np.concatenate([canvas.eligible(), self.live])


def layout(rows: Sequence[Row], width: int) -> Layout | None:
    """What the places of verifying windows stand for; `None` if the rows do not verify."""
    canvas = rows[0].canvas
    if not verifies(canvas):
        return None
    if canvas.spec.shift:
        return Layout(offsets=np.arange(width), sees=np.tri(width, dtype=np.bool_))
    length = width // 2
    before, until = np.tri(length, k=-1, dtype=np.bool_), np.tri(length, dtype=np.bool_)
    itself, nothing = np.eye(length, dtype=np.bool_), np.zeros_like(until)
    return Layout(
        offsets=np.tile(np.arange(length), 2),
        sees=np.block([[itself, before], [nothing, until]]),
    )
