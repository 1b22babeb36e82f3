"""Bootstrap over documents: intervals of means, and whether a loss is within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95

Values = Sequence[float]


def resampled_means(values: Values, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Means of `RESAMPLES` samples drawn from the values with replacement."""
    drawn = np.random.default_rng(seed)
    held = np.asarray(values, dtype=np.float64)
    count = len(held)
    return np.array([held[drawn.integers(count, size=count)].mean() for _ in range(RESAMPLES)])


def interval(values: Values, seed: int) -> tuple[float, float] | None:
    """The percentile interval of the mean at `LEVEL`; `None` of no values."""
    if not values:
        return None
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(resampled_means(values, seed), [tail, 100 - tail])
    return float(low), float(high)


def loss_bound(losses: Values, seed: int) -> float:
    """What the mean loss stays below with confidence `LEVEL`: the paired bootstrap's one-sided
    bound, given the loss of each document under one setting against another."""
    return float(np.percentile(resampled_means(losses, seed), 100 * LEVEL))
