"""The BERT denoiser computes what the stock module computes, with a cache that is exact."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raydiff.models.bert import BertDenoiser
from raydiff.models.loading import random_denoiser

TARGET = 48


@pytest.fixture(scope="module")
def denoiser() -> BertDenoiser:
    return random_denoiser(target_position=TARGET)


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(4, 64, (rows, length), generator=torch.Generator().manual_seed(seed))


def positions(rows: int, length: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + length).expand(rows, length)


def test_logits_equal_the_stock_modules(denoiser: BertDenoiser) -> None:
    tokens_BL = tokens(3, 10)
    hidden_BLD, _ = denoiser.forward(tokens_BL, positions(3, 10), None, None, False)
    stock_BLV = denoiser.model(tokens_BL).logits
    assert torch.allclose(denoiser.logits(hidden_BLD), stock_BLV, atol=1e-5)


def test_generated_positions_have_token_type_one(denoiser: BertDenoiser) -> None:
    tokens_BL, positions_BL = tokens(2, 8), positions(2, 8, start=TARGET)
    hidden_BLD, _ = denoiser.forward(tokens_BL, positions_BL, None, None, False)
    stock = denoiser.model(
        tokens_BL, position_ids=positions_BL, token_type_ids=torch.ones_like(tokens_BL)
    )
    assert torch.allclose(denoiser.logits(hidden_BLD), stock.logits, atol=1e-5)


def test_a_block_over_a_cached_prompt_equals_recomputing_both(denoiser: BertDenoiser) -> None:
    prompt_BT, block_BL = tokens(2, 7), tokens(2, 8, seed=1)
    places_BT, places_BL = positions(2, 7), positions(2, 8, start=TARGET)
    past = denoiser.encode(prompt_BT, places_BT, None, None)
    cached_BLD, _ = denoiser.forward(block_BL, places_BL, None, past, False)
    mask_KK = torch.ones(15, 15, dtype=torch.bool)
    mask_KK[:7, 7:] = False  # the prompt does not see the block
    whole_BKD, _ = denoiser.forward(
        torch.cat([prompt_BT, block_BL], 1),
        torch.cat([places_BT, places_BL], 1),
        mask_KK.expand(2, -1, -1),
        None,
        False,
    )
    assert torch.allclose(cached_BLD, whole_BKD[:, 7:], atol=1e-5)


def test_encode_returns_forwards_cache_and_shape(denoiser: BertDenoiser) -> None:
    (past,) = denoiser.encode(tokens(2, 5), positions(2, 5), None, None)
    _, kv = denoiser.forward(tokens(2, 5), positions(2, 5), None, None, True)
    assert kv is not None
    assert torch.equal(past, kv[0])
    (group,) = denoiser.spec.kv
    assert past.shape == (group.layers, 2, 2, group.heads, 5, group.head_dim)
    per_position = past[:, :, 0, :, 0].numel() * past.dtype.itemsize
    assert denoiser.spec.cache_bytes_per_position(past.dtype.itemsize) == per_position


def test_the_cache_is_read_and_never_changed(denoiser: BertDenoiser) -> None:
    past = denoiser.encode(tokens(2, 5), positions(2, 5), None, None)
    before = past[0].clone()
    _, kv = denoiser.forward(tokens(2, 4), positions(2, 4, TARGET), None, past, True)
    assert kv is not None
    assert kv[0].shape[4] == 4
    assert torch.equal(past[0], before)


def test_padding_and_neighbours_do_not_change_a_row(denoiser: BertDenoiser) -> None:
    row_1L = tokens(1, 6)
    alone_1LD, _ = denoiser.forward(row_1L, positions(1, 6), None, None, False)
    batch_BL = torch.zeros(3, 11, dtype=torch.long)
    batch_BL[0, :6] = row_1L
    batch_BL[1:] = tokens(2, 11, seed=2)
    keys_BL = torch.ones(3, 11, dtype=torch.bool)
    keys_BL[0, 6:] = False
    mask_BLL = keys_BL[:, None, :].expand(3, 11, 11)
    batch_BLD, _ = denoiser.forward(batch_BL, positions(3, 11), mask_BLL, None, False)
    assert torch.allclose(alone_1LD[0], batch_BLD[0, :6], atol=1e-5)


def test_a_row_that_may_attend_to_nothing_gives_no_nan(denoiser: BertDenoiser) -> None:
    mask_BLL = torch.ones(2, 4, 4, dtype=torch.bool)
    mask_BLL[1] = False
    hidden_BLD, kv = denoiser.forward(tokens(2, 4), positions(2, 4), mask_BLL, None, True)
    assert bool(torch.isfinite(hidden_BLD).all())
    assert kv is not None
    assert bool(torch.isfinite(kv[0]).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_unfused_training_weights_give_the_same_result(dtype: torch.dtype) -> None:
    model = random_denoiser(target_position=TARGET)
    fused = BertDenoiser(model.model.to(dtype), model.spec)
    unfused = BertDenoiser(model.model, model.spec, fuse=False)
    inputs = (tokens(2, 5), positions(2, 5), None, None, False)
    assert torch.equal(fused.forward(*inputs)[0], unfused.forward(*inputs)[0])
    assert fused.dtype == dtype


def test_positions_that_are_not_live_change_nothing_for_the_others(denoiser: BertDenoiser) -> None:
    tokens_BL, positions_BL = tokens(2, 9), positions(2, 9)
    live_BL = torch.ones(2, 9, dtype=torch.bool)
    live_BL[1, 4:] = False
    mask_BLL = live_BL[:, None, :].expand(2, 9, 9)
    all_BLD, _ = denoiser.forward(tokens_BL, positions_BL, mask_BLL, None, False)
    packed_BLD, kv = denoiser.forward(tokens_BL, positions_BL, mask_BLL, None, True, live_BL)
    encoded = denoiser.encode(tokens_BL, positions_BL, mask_BLL, None, live_BL)
    assert torch.allclose(all_BLD[live_BL], packed_BLD[live_BL], atol=1e-5)
    assert kv is not None
    assert torch.equal(kv[0], encoded[0])
