"""Classifier-free guidance."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.diffusion.guidance import combine


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0, 10))
def test_guidance_extrapolates_from_the_unconditional_logits(seed: int, scale: float) -> None:
    conditional, unconditional = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(seed))
    expected = unconditional + (scale + 1) * (conditional - unconditional)
    combined = combine(conditional, unconditional, torch.full((4,), scale))
    torch.testing.assert_close(combined, expected, atol=1e-4, rtol=1e-4)


def test_scale_zero_is_no_guidance_to_the_bit() -> None:
    conditional, unconditional = torch.randn(2, 5, 9)
    assert torch.equal(combine(conditional, unconditional, torch.zeros(5)), conditional)


def test_each_position_has_its_own_scale() -> None:
    conditional, unconditional = torch.tensor([[1.0], [1.0]]), torch.tensor([[0.0], [0.0]])
    scale = torch.tensor([0.0, 2.0])
    assert combine(conditional, unconditional, scale).tolist() == [[1], [3]]
