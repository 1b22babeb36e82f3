"""Sliding windows narrow a mask by positions."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raydiff.models.sliding import Reach, sliding_reach, whole_reach


def seen(reach: Reach, cached: int) -> Tensor:
    """[B, L, K] bool over all cached keys, those left out included."""
    assert reach.bias is not None
    read = reach.bias[:, 0] == 0
    left_out = torch.zeros(*read.shape[:2], reach.start, dtype=torch.bool)
    assert read.shape[2] == cached - reach.start + read.shape[1]
    return torch.cat([left_out, read], dim=2)


@given(st.data())
def test_a_query_sees_what_is_near_and_allowed(data: st.DataObject) -> None:
    """For rows of any length, and whatever is left out at the cache's beginning."""
    rows, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    cached, window = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 8))
    starts = [data.draw(st.integers(0, cached)) for _ in range(rows)]
    seed = data.draw(st.integers(0, 2**16))
    positions = torch.tensor(starts)[:, None] + torch.arange(length)
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, length, cached + length, generator=generator) < 0.7
    oldest = positions - (window - 1)
    found = seen(sliding_reach(mask, positions, oldest, cached, torch.float32), cached)
    for row in range(rows):
        keys = [*range(cached), *positions[row].tolist()]
        for query in range(length):
            near = [key > positions[row, query] - window for key in keys]
            expected = mask[row, query] & torch.tensor(near)
            assert torch.equal(found[row, query], expected)


def test_cached_keys_that_no_row_reads_are_left_out() -> None:
    """The row that begins first decides."""
    positions = torch.tensor([[10], [20]])
    reach = sliding_reach(None, positions, positions - 3, 20, torch.float32)
    assert reach.start == 7
    past = torch.arange(20.0).view(1, 1, 1, 20, 1).expand(2, 2, 1, 20, 4)
    kept = reach.cached(past)
    assert kept is not None
    assert kept[0, 0, 0, :, 0].tolist() == list(range(7, 20))
    assert reach.cached(None) is None


def test_a_row_out_of_everything_leaves_nothing_out_for_the_others() -> None:
    """A row of padding only is beyond all positions."""
    beyond = torch.iinfo(torch.int64).max
    positions = torch.tensor([[0], [6]])
    oldest = torch.tensor([[beyond - 3], [3]])
    reach = sliding_reach(None, positions, oldest, 6, torch.float32)
    assert reach.start == 3
    assert reach.bias is not None
    assert torch.isfinite(reach.bias).all(), "a row that reads nothing gives no NaN"
    assert not seen(reach, 6)[0].any()


def test_a_mask_of_the_whole_leaves_nothing_out() -> None:
    mask = torch.tensor([[[True, False, True]]])
    reach = whole_reach(mask, torch.float32)
    assert seen(reach, 2).tolist() == mask.tolist()
    assert whole_reach(None, torch.float32).bias is None
