"""Positions a step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raydiff.diffusion.schedule import quotas


@given(positions=st.integers(0, 200), steps=st.integers(1, 200))
def test_quotas_spread_all_positions_evenly_the_larger_first(positions: int, steps: int) -> None:
    shares = quotas(positions, steps)
    assert sum(shares) == positions
    assert len(shares) == min(positions, steps)
    assert list(shares) == sorted(shares, reverse=True)
    assert not shares or max(shares) - min(shares) <= 1


def test_sixteen_steps_over_thirty_two_positions_commit_two_each() -> None:
    assert quotas(32, 16) == (2,) * 16
    assert quotas(20, 16) == (2, 2, 2, 2) + (1,) * 12
