"""Positions a step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raydiff.diffusion.schedule import quotas, timestep_quotas


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


def published(positions: int, steps: int) -> list[int]:
    """Dream's counts step by step, those of nothing included."""
    times = [1 - i * (1 - 1e-3) / steps for i in range(steps + 1)]
    counts: list[int] = []
    for i in range(steps):
        left = positions - sum(counts)
        counts.append(left if i == steps - 1 else int(left * (1 - times[i + 1] / times[i])))
    return counts


@given(positions=st.integers(0, 300), steps=st.integers(1, 300))
def test_timestep_quotas_are_dreams_without_idle_steps(positions: int, steps: int) -> None:
    shares = timestep_quotas(positions, steps)
    assert list(shares) == [count for count in published(positions, steps) if count]
    assert sum(shares) == positions
    assert len(shares) <= min(positions, steps)


def test_as_many_steps_as_positions_idle_first_and_take_two_last() -> None:
    """The shift of Dream's times by eps shows."""
    assert published(8, 8) == [0, 1, 1, 1, 1, 1, 1, 2]
    assert timestep_quotas(8, 8) == (1, 1, 1, 1, 1, 1, 2)


def test_one_timestep_takes_all() -> None:
    assert timestep_quotas(32, 1) == (32,)
