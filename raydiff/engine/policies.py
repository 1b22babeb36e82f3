"""What each policy reads of the rows that use it. Knows no torch.

Shapes: S rows of one policy, F positions of a frame, W of the window, K draws, T past forwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from raydiff.decoding import CHOICES, POLICY_SETTINGS
from raydiff.diffusion.traits import TRAITS
from raydiff.engine.asking import remembers
from raydiff.engine.canvas import Canvas
from raydiff.engine.frame import Floats, Ints
from raydiff.engine.plan import PolicyRows
from raydiff.engine.rows import Row, stack


def policy_rows(rows: Sequence[Row], width: int) -> tuple[PolicyRows, ...]:
    """The rows grouped by policy, with what the policy's rule reads; those that choose among
    given texts have a rule of their own."""
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if row.canvas.choices is not None:
            continue
        assert row.canvas.request.decoding.policy is not None
        groups.setdefault(row.canvas.request.decoding.policy, []).append(i)
    return tuple(
        _policy_rows(policy, at, [rows[i] for i in at], width) for policy, at in groups.items()
    )


def _policy_rows(policy: str, at: list[int], rows: Sequence[Row], width: int) -> PolicyRows:
    canvases = [row.canvas for row in rows]
    uniforms = _uniforms(policy, rows, width)  # first: it may pass over steps
    times = [canvas.block.times() for canvas in canvases]
    past = _past(rows, width) if policy == "credit" else None
    return PolicyRows(
        policy=policy,
        rows=np.array(at, dtype=np.int64),
        settings={name: _setting(name, canvases) for name in POLICY_SETTINGS[policy]},
        needs=_needs(policy, canvases),
        step=np.array([canvas.step for canvas in canvases], dtype=np.int64),
        full_steps=np.array([canvas.block.full_steps for canvas in canvases], dtype=np.int64),
        time=np.array([time for time, _ in times], dtype=np.float32),
        next_time=np.array([time for _, time in times], dtype=np.float32),
        uniforms=uniforms,
        previous_best=_spread(rows, width, lambda c: c.block.history.best, -1)
        if "stop_entropy" in POLICY_SETTINGS[policy] or policy == "speculative"
        else None,
        commit_confidence=_spread(rows, width, lambda c: c.block.history.confidence, 1.0)
        if TRAITS[policy].revises
        else None,
        past_best=past[0] if past else None,
        past_confidence=past[1] if past else None,
    )


def _spread(rows: Sequence[Row], width: int, of: Callable[[Canvas], Any], fill: float) -> Any:
    return stack([row.spread(of(row.canvas), fill) for row in rows], width, fill)


def _needs(policy: str, canvases: Sequence[Canvas]) -> frozenset[str]:
    if policy in ("ancestral", "flow"):  # entropy is for stopping early
        stops = any(canvas.request.decoding.stop_entropy is not None for canvas in canvases)
        return TRAITS[policy].needs if stops else frozenset()
    if policy != "quota":
        return TRAITS[policy].needs
    scores = {canvas.request.decoding.score for canvas in canvases}
    return frozenset(s for s in scores if s in ("margin", "entropy"))


def _uniforms(policy: str, rows: Sequence[Row], width: int) -> Floats | None:
    """(S, K, W) draws beside the candidate's. A row's own settings decide whether it draws, never
    those of the rows beside it.
    """
    draws = TRAITS[policy].draws
    own = [policy != "quota" or _draws_rank(row.canvas) for row in rows]
    if not draws or not any(own):
        return None
    return stack(
        [
            row.spread(_step_uniforms(row.canvas, draws), 0.0)
            if asks
            else np.zeros((draws, len(row.tokens)), dtype=np.float32)
            for row, asks in zip(rows, own, strict=True)
        ],
        width,
        0.0,
    )


def _step_uniforms(canvas: Canvas, draws: int) -> Floats:
    """(draws, F) one forward's draws. Steps of ancestral sampling that unmask nothing are passed
    over: they would change neither tokens nor predictions (MDLM, Sahoo et al. 2024, section 4).
    """
    uniforms = canvas.uniforms(draws)
    while _may_pass_over(canvas) and not _unmasks(canvas, uniforms[0]):
        canvas.block.step += 1
        uniforms = canvas.uniforms(draws)
    return uniforms


def _may_pass_over(canvas: Canvas) -> bool:
    ancestral = canvas.request.decoding.policy == "ancestral" and canvas.spec.noise == "absorbing"
    return ancestral and canvas.windows.cache in ("none", "exact") and not remembers(canvas)


def _unmasks(canvas: Canvas, uniforms: Floats) -> bool:
    """Whether ancestral sampling unmasks an eligible position with these draws (F,)."""
    time, next_time = canvas.block.times()
    stay = np.float32(next_time) / np.float32(time)
    return bool((canvas.eligible() & (uniforms >= stay)).any())


def _draws_rank(canvas: Canvas) -> bool:
    d = canvas.request.decoding
    return d.score == "random" or bool(d.score_temperature)


def _setting(name: str, canvases: Sequence[Canvas]) -> Floats:
    """(S,) values; names by their place in `CHOICES`, `None` as NaN."""
    values = [getattr(canvas.request.decoding, name) for canvas in canvases]
    names = CHOICES[name].of
    numbers = [
        math.nan if v is None else float(names.index(v)) if names else float(v) for v in values
    ]
    return np.array(numbers, dtype=np.float32)


def _past(rows: Sequence[Row], width: int) -> tuple[Ints, Floats]:
    """(S, T, W) most likely tokens and their probabilities in the block's forwards so far, the
    latest last; probability 0 where a row had fewer."""
    longest = max(len(row.canvas.block.history.past_best) for row in rows)
    best = np.zeros((len(rows), longest, width), dtype=np.int64)
    confidence = np.zeros((len(rows), longest, width), dtype=np.float32)
    for i, row in enumerate(rows):
        history = row.canvas.block.history
        for t, (tokens, sure) in enumerate(
            zip(history.past_best[::-1], history.past_confidence[::-1], strict=True)
        ):
            best[i, longest - 1 - t] = stack([row.spread(np.maximum(tokens, 0), 0)], width, 0)[0]
            confidence[i, longest - 1 - t] = stack([row.spread(sure, 0.0)], width, 0.0)[0]
    return best, confidence
