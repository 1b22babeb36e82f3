"""What a forward says of rows of one policy, and what the policy makes of it.

Shapes: R rows, W positions, K draws a position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from raydiff.diffusion.traits import Traits
from raydiff.spec import Noise


@dataclass(frozen=True, kw_only=True)
class View:
    """Rows of one policy after a forward, each with its own parameters."""

    tokens: Tensor
    """(R, W) int64: the canvas as it is."""
    open: Tensor
    """(R, W) bool: positions that may commit now; closed ones and later blocks are False."""
    revisable: Tensor
    """(R, W) bool: closed positions that a revising policy may change or hide again."""
    candidates: Tensor
    """(R, W) int64: x0 drawn at the row's temperature (at 0 the most likely token); the token
    itself where neither open nor revisable."""
    confidence: Tensor
    """(R, W) float32: probability of the candidate, before temperature."""
    best: Tensor
    """(R, W) int64: the most likely token."""
    best_confidence: Tensor
    """(R, W) float32: its probability."""
    margin: Tensor
    """(R, W) float32: probability of the most likely token less that of the second; zeros unless
    the rule needs it."""
    entropy: Tensor
    """(R, W) float32: nats, of the distribution at the row's temperature (at 0 untempered); zeros
    unless the rule needs it."""
    previous_best: Tensor
    """(R, W) int64: `best` of the forward before, -1 at a block's first."""
    commit_confidence: Tensor
    """(R, W) float32: `confidence` at which a closed position last committed, 1 for given ones."""
    uniforms: Tensor
    """(R, K, W) float32 in [0, 1): draws of the rows' own generators, fresh at each step. K is 0
    where no row asks for any."""
    at_least: Tensor
    """(R,) int64: positions to commit at least (at most as many as are open)."""
    step: Tensor
    """(R,) int64: forwards of this block before this one."""
    full_steps: Tensor
    """(R,) int64: those of them that saw the block without an open position."""
    time: Tensor
    """(R,) float32: noise level before the step, from 1 on down."""
    next_time: Tensor
    """(R,) float32: noise level after it, 0 at the last."""
    settings: Mapping[str, Tensor]
    """(R,) float32: the policy's own settings by their names in `Decoding`; those that are words
    by their place in `CHOICES`, `None` as NaN."""
    noise: Noise
    vocab_size: int
    mask_id: int


@dataclass(frozen=True, kw_only=True)
class Change:
    """What becomes of the rows' positions. Only open and revisable ones may differ."""

    tokens: Tensor
    """(R, W) int64."""
    open: Tensor
    """(R, W) bool: positions still (or again) to be decided."""
    final: Tensor
    """(R,) bool: the block is done, its `tokens` final wherever they are open."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One policy."""

    apply: Callable[[View], Change]
    traits: Traits
