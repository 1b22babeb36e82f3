"""What the scheduler asks of the latent runner: rows of noised embeddings. Frozen, free of torch.

Shapes: R rows, W positions of the widest frame, S rows that draw, E embedding width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from raydiff.decoding import CHOICES, Decoding
from raydiff.engine.asking import end_forbidden
from raydiff.engine.canvas import Canvas
from raydiff.engine.frame import Bools, Floats, Ints
from raydiff.engine.plan import Shape
from raydiff.engine.rows import stack

SOLVERS = CHOICES["solver"].of
ROUNDINGS = CHOICES["rounding"].of

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Random numbers of the rows' own generators, for the rows that need them."""

    rows: Ints
    """(S,)"""
    values: Floats
    """(S, W, E) normals, or (S, W, V) uniforms in [0, 1)."""


@dataclass(frozen=True, kw_only=True)
class LatentPlan:
    """One evaluation of the network over rows of noised embeddings, each with its own settings."""

    kind: Literal["denoise"] = "denoise"
    shape: Shape
    request_ids: tuple[str, ...]
    prompts: tuple[Ints, ...]
    tokens: Ints
    """(R, W) tokens of closed positions; anything where open."""
    live: Bools
    """(R, W) positions of the row's frame; the rest is padding."""
    open: Bools
    """(R, W) positions that are denoised and commit together at the end."""
    closed: Bools
    """(R, W) given or finished positions, which keep their clean embeddings throughout."""
    end_forbidden: Bools
    """(R, W) where no end token may be predicted."""
    frame_at: Ints
    """(R,) place of the frame's first position: 0."""
    step: Ints
    """(R,) solver step that the evaluation belongs to."""
    corrects: Bools
    """(R,) second evaluation of Heun's step, at the step's end."""
    last: Bools
    """(R,) the evaluation after which the row's steps are done."""
    steps: Ints
    """(R,)"""
    solver: Ints
    """(R,) place in `SOLVERS`."""
    order: Ints
    eta: Floats
    rounding: Ints
    """(R,) place in `ROUNDINGS`."""
    clamp: Bools
    """(R,) the predicted embeddings are rounded at every step."""
    temperature: Floats
    stop_entropy: Floats
    """(R,) mean entropy below which a row whose tokens are stable is done; NaN: never."""
    start: Draws | None
    """The noise that rows begin with."""
    noise: Draws | None
    """Normals of rows whose solver draws."""
    uniforms: Draws | None
    """Uniforms of rows that round by Gumbel noise in this evaluation."""

    @property
    def contexts(self) -> None:
        """Nothing is encoded beside the window."""
        return None


def latent_plan(canvases: Sequence[Canvas], shape: Shape) -> LatentPlan:
    """Plan one evaluation over canvases of one shape; draws from their generators."""
    width = max(len(c.frame) for c in canvases)
    decodings = [c.request.decoding for c in canvases]
    turns = [_turn(c) for c in canvases]
    vocab, size = canvases[0].spec.vocab_size, canvases[0].spec.latent_size
    return LatentPlan(
        shape=shape,
        request_ids=tuple(c.request_id for c in canvases),
        prompts=tuple(c.prompt for c in canvases),
        tokens=stack([c.tokens for c in canvases], width, canvases[0].spec.pad_id),
        live=stack([np.ones(len(c.frame), dtype=np.bool_) for c in canvases], width, False),
        open=stack([c.eligible() for c in canvases], width, False),
        closed=stack([~c.open for c in canvases], width, False),
        end_forbidden=stack([end_forbidden(c) for c in canvases], width, False),
        frame_at=np.zeros(len(canvases), dtype=np.int64),
        step=np.array([turn.step for turn in turns], dtype=np.int64),
        corrects=np.array([turn.corrects for turn in turns]),
        last=np.array([turn.last for turn in turns]),
        steps=_settings(decodings, lambda d: d.steps or 1, np.int64),
        solver=_settings(decodings, lambda d: SOLVERS.index(d.solver or "ddim"), np.int64),
        order=_settings(decodings, lambda d: d.solver_order or 1, np.int64),
        eta=_settings(decodings, lambda d: d.eta or 0.0, np.float32),
        rounding=_settings(
            decodings, lambda d: ROUNDINGS.index(d.rounding or "euclidean"), np.int64
        ),
        clamp=_settings(decodings, lambda d: bool(d.clamp), np.bool_),
        temperature=_settings(decodings, lambda d: d.temperature or 0.0, np.float32),
        stop_entropy=_settings(
            decodings, lambda d: math.nan if d.stop_entropy is None else d.stop_entropy, np.float32
        ),
        start=_draws(canvases, [c.step == 0 for c in canvases], width, size, _normals),
        noise=_draws(canvases, [_adds_noise(c) for c in canvases], width, size, _normals),
        uniforms=_draws(canvases, [_perturbs(c) for c in canvases], width, vocab, _uniforms),
    )


@dataclass(frozen=True)
class _Turn:
    """Where in its solver a row stands."""

    step: int
    corrects: bool
    last: bool


def _turn(canvas: Canvas) -> _Turn:
    """Heun evaluates twice a step, but once in the last, which lands on clean data: a row of N
    steps has 2 N - 1 evaluations.
    """
    d, done = canvas.request.decoding, canvas.step
    steps = d.steps or 1
    if d.solver == "heun":
        return _Turn(done // 2, done % 2 == 1, done == 2 * (steps - 1))
    return _Turn(done, False, done == steps - 1)


def _adds_noise(canvas: Canvas) -> bool:
    d = canvas.request.decoding
    return (d.solver == "ddpm" or (d.solver == "ddim" and bool(d.eta))) and not _turn(canvas).last


def _perturbs(canvas: Canvas) -> bool:
    d = canvas.request.decoding
    rounds = bool(d.clamp) or _turn(canvas).last or d.stop_entropy is not None
    return d.rounding == "gumbel" and bool(d.temperature) and rounds


def _draws(
    canvases: Sequence[Canvas],
    draws: Sequence[bool],
    width: int,
    size: int,
    draw: Callable[[Canvas, int], Floats],
) -> Draws | None:
    rows = [i for i, asks in enumerate(draws) if asks]
    if not rows:
        return None
    values = np.zeros((len(rows), width, size), dtype=np.float32)
    for place, i in enumerate(rows):
        values[place, : len(canvases[i].frame)] = draw(canvases[i], size)
    return Draws(rows=np.array(rows, dtype=np.int64), values=values)


def _normals(canvas: Canvas, size: int) -> Floats:
    return canvas.rng.standard_normal((len(canvas.frame), size), dtype=np.float32)


def _uniforms(canvas: Canvas, size: int) -> Floats:
    return canvas.rng.random((len(canvas.frame), size), dtype=np.float32)


def _settings(
    decodings: Sequence[Decoding], of: Callable[[Decoding], float], dtype: type[T]
) -> npt.NDArray[T]:
    return np.array([of(d) for d in decodings], dtype=dtype)
