"""Snapshots: a canvas as text while it is denoised, for whoever wants to watch."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from raydiff.engine.canvas import Canvas

UNDECIDED = "\u2591"
"""A light shade: stands for each position that is not decided. Of models whose noise is random
tokens those show themselves, as in Mercury's `diffusing` streams."""


def snapshot_of(canvas: Canvas) -> str:
    """The committed text, and after it whatever stands on the canvas up to its end."""
    frame, written = canvas.frame, canvas.written
    begin = frame.lead + len(canvas.transcript) - len(written)
    end = written.first_end(frame)
    until = min(written.limit(frame), len(frame)) if end is None else end
    tokens, undecided = frame.tokens[begin:until], frame.open[begin:until]
    if canvas.spec.noise == "uniform":
        undecided = undecided & np.isin(
            tokens, [canvas.spec.mask_id, canvas.spec.pad_id, *canvas.spec.end_ids]
        )
    return canvas.transcript.preview(_spelled(canvas, tokens.tolist(), undecided.tolist()))


def _spelled(canvas: Canvas, tokens: list[int], undecided: list[bool]) -> str:
    """Each run of decided tokens as it reads after the token before it, or after a gap."""
    decode = canvas.tokenizer.decode
    before = list(canvas.transcript.all_ids[-1:])
    pieces = []
    for open_, run in groupby(zip(undecided, tokens, strict=True), key=lambda pair: pair[0]):
        ids = [token for _, token in run]
        if open_:
            pieces.append(UNDECIDED * len(ids))
            before = [canvas.spec.mask_id]
        else:
            pieces.append(decode([*before, *ids]).removeprefix(decode(before)))
    return "".join(pieces)
