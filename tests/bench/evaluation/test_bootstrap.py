"""Bootstrap intervals and bounds."""

from __future__ import annotations

import numpy as np
import pytest

from raydiff.bench.evaluation.bootstrap import interval, loss_bound


def test_an_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(0)
    hits = 0
    for seed in range(100):
        found = interval(list(drawn.normal(0.4, 0.2, size=60)), seed)
        assert found is not None
        hits += found[0] <= 0.4 <= found[1]
    assert 88 <= hits <= 99


def test_more_documents_make_a_narrower_interval() -> None:
    def width(count: int) -> float:
        found = interval([0.0, 1.0] * count, seed=1)
        assert found is not None
        return found[1] - found[0]

    assert width(500) == pytest.approx(width(5) / 10, rel=0.3)


def test_edge_cases() -> None:
    assert interval([], seed=0) is None
    assert interval([0.5], seed=0) == (0.5, 0.5)


def test_the_same_seed_gives_the_same_interval() -> None:
    values = [0.1, 0.5, 0.9, 0.2]
    assert interval(values, seed=3) == interval(values, seed=3)


def test_a_loss_that_may_be_noise_is_not_ruled_out() -> None:
    """On average nothing is lost, but so few documents cannot tell."""
    few = [0.3, -0.3, 0.2, -0.2]
    assert loss_bound(few, seed=0) > 0.1
    assert loss_bound(few * 500, seed=0) < 0.02
    assert loss_bound([0.0] * 5, seed=0) == 0
