"""What the next forward must know of a canvas: read off its state and its request's decoding.

Shapes: F positions of the frame.
"""

from __future__ import annotations

import numpy as np

from raydiff.engine.canvas import Canvas
from raydiff.engine.frame import Bools, Ints


def temperature(canvas: Canvas) -> float:
    """Temperature of the next forward's tokens; choices are drawn whole."""
    if canvas.choices is not None:
        return 0.0
    return canvas.spec.temperature_at(canvas.request.decoding, canvas.step)


def remembers(canvas: Canvas) -> bool:
    """Whether the canvas wants to `observe` every forward."""
    d = canvas.request.decoding
    if canvas.choices is not None:
        return False
    asks = d.stop_entropy is not None or bool(d.stable_steps)
    return asks or d.policy in ("credit", "remask", "speculative")


def verifies(canvas: Canvas) -> bool:
    """Whether the next forward verifies the draft that the last one made."""
    speculates = canvas.request.decoding.policy == "speculative" and canvas.choices is None
    return speculates and canvas.step % 2 == 1


def drafted(canvas: Canvas) -> Ints:
    """(F,) the frame's tokens, the draft where they are open and due."""
    tokens: Ints = np.where(canvas.eligible(), canvas.block.history.best, canvas.tokens)
    return tokens


def end_forbidden(canvas: Canvas) -> Bools:
    """(F,) where the end token may not be predicted: `ignore_eos`, `min_tokens`, or a pinned token
    still to come."""
    d, frame = canvas.request.decoding, canvas.frame
    offsets = len(canvas.written) - frame.lead + np.arange(len(frame))
    last_pin = max((offset for offset, _ in canvas.request.pinned), default=-1)
    return np.asarray(d.ignore_eos | (offsets < d.min_tokens) | (offsets < last_pin))


def live(canvas: Canvas) -> Bools:
    """(F,) positions that the next forward computes and attends to."""
    alive: Bools = np.ones(len(canvas.frame), dtype=np.bool_)
    if canvas.spec.drop_after_end:
        ends = np.flatnonzero(np.isin(canvas.tokens, canvas.spec.end_ids) & ~canvas.open)
        alive[ends[0] + 1 if len(ends) else len(alive) :] = False
    return alive
