"""Attention over cached and new positions, whatever heads share and however long the input."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from raydiff.models import attention
from raydiff.models.attention import attend, mask_bias

ROWS, HEADS, LENGTH, CACHED, SIZE = 2, 6, 5, 7, 4


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("long", [1, 1024])
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("cached", [0, CACHED])
@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_softmax_attention(
    monkeypatch: pytest.MonkeyPatch,
    long: int,
    groups: int,
    cached: int,
    scale: float | None,
    masked: bool,
) -> None:
    """As torch has it, cached keys first, query heads in the order of the key heads they share;
    long inputs alike."""
    monkeypatch.setattr(attention, "LONG", long)
    query = random(ROWS, HEADS, LENGTH, SIZE, seed=0)
    kv = random(2, ROWS, groups, LENGTH, SIZE, seed=1)
    past = random(2, ROWS, groups, cached, SIZE, seed=2) if cached else None
    keys = kv if past is None else torch.cat([past, kv], dim=3)
    mask = random(ROWS, LENGTH, keys.shape[3], seed=3) > 0 if masked else None
    if mask is not None:
        mask[..., 0] = True
    found = attend(query, kv, past, mask_bias(mask, torch.float32), scale)
    shared = HEADS // groups
    expected = scaled_dot_product_attention(
        query,
        keys[0].repeat_interleave(shared, dim=1),
        keys[1].repeat_interleave(shared, dim=1),
        None if mask is None else mask[:, None],
        scale=scale,
    )
    torch.testing.assert_close(found, expected.transpose(1, 2).flatten(2), atol=1e-5, rtol=1e-5)


def test_a_query_that_may_see_nothing_gives_a_number() -> None:
    query, kv = random(1, 1, 1, SIZE, seed=0), random(2, 1, 1, 1, SIZE, seed=1)
    bias = mask_bias(torch.zeros(1, 1, 1, dtype=torch.bool), torch.float32)
    assert torch.isfinite(attend(query, kv, None, bias)).all()
