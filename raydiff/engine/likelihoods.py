"""How likely the tokens of a text were when they were decided, for requests that ask. Knows no
torch.

Shapes: S rows that ask, W window positions, F positions of the frame, K alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydiff.engine.frame import Floats, Ints
from raydiff.engine.rows import gather
from raydiff.engine.written import Scored


@dataclass(frozen=True, kw_only=True)
class LikelihoodRows:
    """The rows whose distributions a forward is to tell of."""

    rows: Ints
    """(S,) ascending."""
    top: int
    """K: the most alternatives that one of them asks for."""


@dataclass(frozen=True, kw_only=True)
class RowLikelihoods:
    """Log-probabilities under the model's own distribution, in the order of the rows that ask."""

    rows: Ints
    """(S,) ascending."""
    candidate: Floats
    """(S, W) of the result's candidates."""
    best: Floats
    """(S, W) of the tokens most likely under the request's rules, which early stops commit."""
    top_ids: Ints
    """(S, W, K) the likeliest tokens, likeliest first."""
    top: Floats
    """(S, W, K) their log-probabilities."""


def likelihood_rows(asked: Sequence[int | None]) -> LikelihoodRows | None:
    """Of each row the alternatives that it asks for, or `None` where it does not ask."""
    rows = [i for i, top in enumerate(asked) if top is not None]
    if not rows:
        return None
    top = max(asked[i] or 0 for i in rows)
    return LikelihoodRows(rows=np.array(rows, dtype=np.int64), top=top)


def scored(found: RowLikelihoods, row: int, candidates: Ints, frame_at: int, length: int) -> Scored:
    """One row's part of a forward's likelihoods, by the frame's positions; `candidates` (W,)."""
    place = int(np.searchsorted(found.rows, row))
    return Scored(
        candidates=gather(candidates, frame_at, length, -1),
        candidate=gather(found.candidate[place], frame_at, length, 0.0),
        best=gather(found.best[place], frame_at, length, 0.0),
        top_ids=_gathered(found.top_ids[place], frame_at, length, -1),
        top=_gathered(found.top[place], frame_at, length, -np.inf),
    )


def _gathered(values_WK: np.ndarray, frame_at: int, length: int, fill: float) -> np.ndarray:
    """(F, K)"""
    columns = [gather(column, frame_at, length, fill) for column in values_WK.T]
    return np.stack(columns, axis=1) if columns else np.zeros((length, 0), values_WK.dtype)
