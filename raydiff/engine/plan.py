"""What the scheduler asks of the runner, and what it gets back: frozen, free of torch.

Shapes: R rows, G of them guided, W positions of the window: as many as the longest row computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from raydiff.engine.frame import Bools, Floats, Ints
from raydiff.engine.likelihoods import LikelihoodRows, RowLikelihoods
from raydiff.engine.prefix import Piece


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What rows of one forward have in common."""

    context: int
    """Cached positions a row has room for (a bucket's size); 0 caches nothing."""
    length: int
    """Positions of a frame, or a bucket of window lengths where nothing is cached."""
    store: bool = False
    """The forward fills the rows' approximate caches."""
    verify: bool = False
    """The forward verifies the rows' drafts."""


@dataclass(frozen=True, kw_only=True)
class PrefixPlan:
    """What an encoding takes over from earlier prompts, and what it keeps for later ones."""

    taken: tuple[tuple[Piece, ...], ...]
    """Pieces that begin each row's prompt, to be put into its cache before."""
    evicted: tuple[int, ...]
    """Keys of pieces that are no longer kept."""
    kept: tuple[tuple[Piece, ...], ...]
    """Pieces of each row's prompt to keep afterwards."""


@dataclass(frozen=True, kw_only=True)
class EncodePlan:
    """Encode tokens (prompts, or frames just finished) and put them into the rows' caches."""

    kind: Literal["encode"] = "encode"
    shape: Shape
    request_ids: tuple[str, ...]
    tokens: tuple[Ints, ...]
    """New tokens of each row."""
    segments: tuple[Ints, ...] | None
    """Segment of each new token, which attends to those of its own and of earlier segments and to
    all that is cached; `None`: each row is one segment."""
    starts: Ints
    """(R,) model position of each row's first new token."""
    cached: Ints
    """(R,) positions of each row that are cached already, those taken over included."""
    prefix: PrefixPlan | None = None


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
class PolicyRows:
    """The rows of one policy, with what it reads; (S,) and (S, W) in the order of `rows`."""

    policy: str
    rows: Ints
    settings: Mapping[str, Floats]
    """The policy's own settings, (S,) each: names by their place in `CHOICES`, `None` as NaN."""
    needs: frozenset[str]
    """Of "margin" and "entropy", those that these rows read."""
    step: Ints
    full_steps: Ints
    time: Floats
    next_time: Floats
    uniforms: Floats | None
    """(S, K, W), where the policy draws."""
    previous_best: Ints | None
    """(S, W), where the policy asks whether predictions are stable."""
    commit_confidence: Floats | None
    """(S, W), where the policy revises by it."""
    past_best: Ints | None
    """(S, T, W) predictions of the block's forwards so far, for credit."""
    past_confidence: Floats | None
    """(S, T, W) their probabilities, zero where a row has fewer."""


@dataclass(frozen=True, kw_only=True)
class ChoiceRows:
    """The rows that become one of given texts; see `raydiff.diffusion.choosing.Options`.

    S such rows, C continuations of a row at most, P open positions of a row at most.
    """

    rows: Ints
    """(S,) ascending."""
    tokens: Ints
    """(S, C, P) at the row's open positions, from left to right."""
    groups: Ints
    """(S, C, P)"""
    real: Bools
    """(S, C)"""
    places: Bools
    """(S, P)"""
    decides: Bools
    """(S,)"""
    temperature: Floats
    """(S,)"""
    uniform: Floats
    """(S,)"""


@dataclass(frozen=True, kw_only=True)
class Contexts:
    """Prompt and finished frames of rows that cache nothing, encoded anew at each forward."""

    tokens: tuple[Ints, ...]
    segments: tuple[Ints, ...]
    positions: tuple[Ints, ...]
    """Model position of each token."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the places of a window differ from a run of positions that all see each other."""

    offsets: Ints
    """(W,) model position of each place, counted from the row's start."""
    sees: Bools
    """(W, W) which places each place sees."""


@dataclass(frozen=True, kw_only=True)
class DenoisePlan:
    """One denoising forward over rows of one shape. Rows R.. of `tokens`, `live`, `starts`,
    `before`, `after`, `contexts` are the guided rows once more, without their prompts.
    """

    kind: Literal["denoise"] = "denoise"
    shape: Shape
    request_ids: tuple[str, ...]
    tokens: Ints
    """(R + G, W)"""
    live: Bools
    """(R + G, W) positions to compute; nothing attends to the others."""
    starts: Ints
    """(R + G,) model position of the window's first token."""
    before: Ints
    """(R + G,) cached positions seen: all of [0, before)."""
    after: Ints
    """(R + G, 2) cached positions seen beside those: [from, to)."""
    blind_first: Bools | None
    """(R + G,) the window's first position sees only what lies before it; `None`: no row's."""
    contexts: Contexts | None
    layout: Layout | None = None
    """Of all rows; `None`: places are positions in a run."""
    frame_at: Ints
    """(R,) place of the frame's first position in the window; negative: before it."""
    open: Bools
    """(R, W) positions that may commit."""
    revisable: Bools | None
    """(R, W) closed positions that may change; `None`: no row's policy revises."""
    revises: Bools
    """(R,) rows whose policy revises."""
    end_forbidden: Bools
    """(R, W) where no end token may be predicted."""
    at_least: Ints
    """(R,) positions to commit at least."""
    policies: tuple[PolicyRows, ...]
    """Of all rows but those that choose."""
    choices: ChoiceRows | None
    likelihoods: LikelihoodRows | None
    """Rows that want log-probabilities back; `None`: no row."""
    sampling: Sampling | None
    guided: Ints
    """(G,) rows that are guided."""
    guidance: Floats
    """(G,) their scales."""
    fresh: Bools | None
    """(R,) rows at a frame's first forward, for models with self-conditioning."""
    remembers: bool
    """Whether a row wants the most likely tokens and confidences back."""


@dataclass(frozen=True, kw_only=True)
class DenoiseResult:
    """What became of the positions, in the plan's row order, (R, W) where not said otherwise."""

    candidates: Ints
    """The token that each scored position would take; elsewhere its own."""
    tokens: Ints
    open: Bools
    """Positions that may still commit."""
    final: Bools
    """(R,) a revising policy is done with the block."""
    best: Ints | None
    """Most likely tokens, where `remembers`."""
    best_confidence: Floats | None
    """Their probabilities."""
    confidence: Floats | None
    """Probabilities of the candidates."""
    chosen: Floats | None = None
    """(R,) probability of what rows that choose committed; 1 for others."""
    likelihoods: RowLikelihoods | None = None
    """Of the rows that ask."""
