"""Segments: the attention patterns of final text as numbers. Numpy only.

A position attends to all keys whose segment is not above its own.
"""

from __future__ import annotations

import numpy as np

from raydiff.engine.frame import Ints
from raydiff.spec import ModelSpec


def segments(spec: ModelSpec, begin: int, end: int, prompt_length: int, block_length: int) -> Ints:
    """Segments (end - begin,) of sequence indices [begin, end) of prompt and finished frames."""
    at = np.arange(begin, end, dtype=np.int64)
    if spec.attention == "causal-encoder":
        return at
    if spec.attention == "block-causal":
        return at // spec.block_length
    return np.where(at < prompt_length, 0, 1 + (at - prompt_length) // block_length)
