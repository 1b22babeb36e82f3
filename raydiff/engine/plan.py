"""What the scheduler asks of the runner, and what it gets back: frozen, free of torch.

Shapes: R rows, W positions of the block: as many as the longest row still computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raydiff.engine.canvas import Bools, Floats, Ints


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What rows of one forward have in common."""

    context: int
    """Cached positions a row has room for (a bucket's size); 0 recomputes everything."""
    block_length: int


@dataclass(frozen=True, kw_only=True)
class EncodePlan:
    """Encode tokens (prompts, or blocks just finished) and put them into the rows' caches."""

    kind: Literal["encode"] = "encode"
    shape: Shape
    request_ids: tuple[str, ...]
    tokens: tuple[tuple[int, ...], ...]
    """New tokens of each row."""
    starts: Ints
    """(R,) model position of each row's first new token."""
    cached: Ints
    """(R,) positions of each row that are cached already; all zero or none zero."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Per-row sampling parameters of rows whose temperature is above 0."""

    rows: Ints
    """(S,) which rows of the plan sample."""
    temperature: Floats
    top_k: Ints
    top_p: Floats
    uniforms: Floats
    """(S, W) draws from the rows' own generators."""


@dataclass(frozen=True, kw_only=True)
class DenoisePlan:
    """One denoising forward over rows of one shape."""

    kind: Literal["denoise"] = "denoise"
    shape: Shape
    request_ids: tuple[str, ...]
    tokens: Ints
    """(R, W)"""
    open: Bools
    """(R, W) positions still to be denoised."""
    live: Bools
    """(R, W) positions to compute; nothing attends to the others."""
    starts: Ints
    """(R,) model position of the block's first token."""
    cached: Ints
    """(R,) cached positions of each row."""
    at_least: Ints
    """(R,) positions to commit at least."""
    threshold: Floats
    """(R,) confidence from which to commit; infinite for none."""
    end_forbidden: Bools
    """(R, W) where no end token may be predicted."""
    sampling: Sampling | None
    contexts: tuple[tuple[int, ...], ...] = ()
    """Prompt and finished blocks of each row, where nothing is cached."""
    prompt_lengths: tuple[int, ...] = ()


Plan = EncodePlan | DenoisePlan


@dataclass(frozen=True, kw_only=True)
class DenoiseResult:
    """Tokens and which of them to commit, (R, W) each, in the plan's row order."""

    tokens: Ints
    commit: Bools
