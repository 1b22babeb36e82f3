"""Discrete flow matching jumps at the rate of its path."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.diffusion.ancestral import unmask
from raydiff.diffusion.flow import jumps

times = st.floats(2**-7, 1, width=32)
N = 4000
GRID = ((torch.arange(N) + 0.5) / N)[None]


@settings(deadline=None)
@given(t=times, share=times)
def test_a_jump_has_the_chance_of_a_constant_rate(t: float, share: float) -> None:
    """1 - exp(-h / t) for a step of h, over an even grid of uniforms."""
    before, after = torch.tensor([t]), torch.tensor([t * share])
    chance = 1 - torch.exp(-(before - after) / before)
    assert abs(float(jumps(before, after, GRID).float().mean()) - float(chance)) <= 1 / N


@settings(deadline=None)
@given(t=times, share=times)
def test_small_steps_jump_as_often_as_ancestral_sampling_reveals(t: float, share: float) -> None:
    """The chances differ by the square of the step's share of the time left, at most."""
    before, after = torch.tensor([t]), torch.tensor([t * share])
    flow = jumps(before, after, GRID).float().mean()
    ancestral = unmask(torch.ones_like(GRID, dtype=torch.bool), before, after, GRID).float().mean()
    assert flow <= ancestral + 1 / N
    assert ancestral - flow <= (1 - share) ** 2 / 2 + 2 / N


def test_at_the_end_everything_jumps() -> None:
    times = torch.tensor([0.01, 0.5, 1.0])
    assert jumps(times, torch.zeros(3), torch.tensor([[0.0, 1 - 2**-24]]).expand(3, 2)).all()
