"""When a sequence may stop early."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.diffusion.stopping import settled

OPEN = torch.tensor([[True, True, False]])
BEST = torch.tensor([[4, 5, 6]])


def stops(previous: list[int], entropy: list[float], bound: float) -> bool:
    previous_RW, entropy_RW = torch.tensor([previous]), torch.tensor([entropy])
    return bool(settled(BEST, previous_RW, entropy_RW, OPEN, torch.tensor([bound])))


def test_it_takes_stable_tokens_and_a_low_mean_entropy() -> None:
    assert stops([4, 5, 6], [0.1, 0.3, 9.0], 0.21)
    assert not stops([4, 5, 6], [0.1, 0.3, 0.0], 0.19)
    assert not stops([4, 9, 6], [0.1, 0.3, 0.0], 0.21)


def test_closed_positions_do_not_count() -> None:
    assert stops([4, 5, -1], [0.1, 0.1, 50.0], 0.2)


def test_the_bound_itself_is_too_much() -> None:
    assert not stops([4, 5, 6], [0.5, 0.5, 0.0], 0.5)
    assert not stops([4, 5, 6], [0.0, 0.0, 0.0], 0.0)


def test_no_bound_never_stops() -> None:
    assert not stops([4, 5, 6], [0.0, 0.0, 0.0], float("nan"))


@settings(deadline=None)
@given(seed=st.integers(0, 10**6))
def test_nothing_stops_at_a_first_forward(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    best = torch.randint(0, 9, (5, 8), generator=generator)
    is_open = torch.rand(5, 8, generator=generator) < 0.5
    first = torch.full((5, 8), -1)
    assert not settled(best, first, torch.zeros(5, 8), is_open, torch.full((5,), 9.0)).any()
