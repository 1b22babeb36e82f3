"""Where a canvas lies in the sequence of prompt and text, and how much of that a cache holds.

Sequence indices count from the prompt's first token.
"""

from __future__ import annotations

import numpy as np

from raydiff.engine.canvas import Canvas
from raydiff.engine.frame import Ints
from raydiff.engine.window import Window


def context_length(canvas: Canvas) -> int:
    """Positions before the frame that are encoded once: prompt and finished frames."""
    return 0 if canvas.spec.attention == "full" else canvas.frame.start


def encoded_prompt(canvas: Canvas) -> Ints:
    """The part of the prompt that is encoded before the first frame is denoised."""
    return canvas.prompt[: context_length(canvas)]


def reserved_context(canvas: Canvas) -> int:
    """The most positions that the request can have in the cache, or in its context."""
    total = canvas.prompt_length + canvas.max_tokens
    if canvas.spec.attention == "full":
        return total if canvas.cached else 0
    length = canvas.geometry.frame_length
    first = canvas.prompt_length - canvas.geometry.lead(canvas.prompt_length, 0)
    return first + (-(-(total - first) // length) - 1) * length


def model_position(canvas: Canvas, index: int) -> int:
    """Model position of a sequence index."""
    start = canvas.spec.target_position
    return index if start is None else start + index - canvas.prompt_length


def sequence(canvas: Canvas, begin: int, end: int) -> Ints:
    """Tokens at sequence indices [begin, end): prompt, finished frames, frame."""
    frame = canvas.frame
    if begin >= frame.start:
        return frame.tokens[begin - frame.start : end - frame.start]
    done = np.array(canvas.written.done, dtype=np.int64)
    return np.concatenate([canvas.prompt, done, frame.tokens[frame.lead :]])[begin:end]


def window(canvas: Canvas) -> Window:
    """What the next forward computes."""
    total = canvas.prompt_length + canvas.max_tokens
    return canvas.windows.next(canvas.frame, canvas.block.place, total, canvas.step)
