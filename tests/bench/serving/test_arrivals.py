"""When the requests of an open loop are due."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from raydiff.bench.serving.arrivals import arrival_times
from raydiff.errors import UsageError


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert arrival_times(4, 10, "constant") == pytest.approx((0, 0.1, 0.2, 0.3))


def test_poisson_arrivals_have_exponential_gaps_at_the_rate_asked_for() -> None:
    times = arrival_times(20_000, 50.0, "poisson", seed=1)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] == 0
    assert min(gaps) >= 0
    assert fmean(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert pstdev(gaps) == pytest.approx(fmean(gaps), rel=0.05)


def test_the_same_seed_gives_the_same_arrivals_and_another_one_others() -> None:
    one = arrival_times(50, 5.0, seed=7)
    assert one == arrival_times(50, 5.0, seed=7)
    assert one != arrival_times(50, 5.0, seed=8)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_must_be_above_zero(rate: float) -> None:
    with pytest.raises(UsageError, match="rate"):
        arrival_times(1, rate)
