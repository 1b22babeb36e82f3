"""The decoder denoiser computes what the families' publications say, whatever the batch, with a
cache that is exact.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raydiff.models import attention
from raydiff.models.decoder import DecoderDenoiser
from raydiff.models.loading import load_denoiser
from tests.families.tiny import TINY, VOCAB, Tiny

TOLERANCE = 1e-4
BLOCK = 4


@pytest.fixture(scope="module", params=TINY, ids=lambda tiny: tiny.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tiny, DecoderDenoiser]:
    """A tiny checkpoint, loaded from a directory as published."""
    torch.set_num_threads(1)
    tiny: Tiny = request.param
    folder = tiny.save(tmp_path_factory.mktemp(tiny.name))
    denoiser = load_denoiser(folder, device="cpu", dtype="fp32")
    assert isinstance(denoiser, DecoderDenoiser)
    return tiny, denoiser


def row(length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(seed))


def places(rows: int, length: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + length).expand(rows, length)


def logits(denoiser: DecoderDenoiser, tokens: Tensor, sees: Tensor | None) -> Tensor:
    mask = None if sees is None else sees[None]
    hidden, _ = denoiser.forward(tokens[None], places(1, len(tokens)), mask, None, False)
    return denoiser.logits(hidden[0])


def close(one: Tensor, other: Tensor) -> bool:
    assert one.shape == other.shape
    return torch.allclose(one, other, atol=TOLERANCE, rtol=0)


def test_logits_equal_the_published_arithmetic(pair: tuple[Tiny, DecoderDenoiser]) -> None:
    tiny, denoiser = pair
    tokens = row(11)
    assert tiny.logits(tokens).std() > 0.3  # else equality would say little
    assert close(logits(denoiser, tokens, tiny.sees(11, tiny.block_length)), tiny.logits(tokens))


@pytest.mark.parametrize("block_length", [None, BLOCK, 1], ids=["full", "blocks", "causal"])
def test_attention_follows_the_mask(
    pair: tuple[Tiny, DecoderDenoiser], block_length: int | None
) -> None:
    tiny, denoiser = pair
    tokens = row(9, seed=1)
    sees = tiny.sees(9, block_length)
    expected = tiny.logits(tokens, sees)
    assert close(logits(denoiser, tokens, None if block_length is None else sees), expected)


def test_padding_and_place_in_the_batch_change_nothing(pair: tuple[Tiny, DecoderDenoiser]) -> None:
    tiny, denoiser = pair
    rows = [row(11, 1), row(4, 2), row(7, 3)]
    for order in ([0, 1, 2], [2, 1, 0]):
        batch = [rows[i] for i in order]
        width = max(map(len, batch))
        live = torch.stack([torch.arange(width) < len(tokens) for tokens in batch])
        padded = torch.stack([torch.cat([t, row(width - len(t), 9)]) for t in batch])
        mask = tiny.sees(width, tiny.block_length) & live[:, None, :]
        for packed in (live, None):
            hidden, _ = denoiser.forward(padded, places(3, width), mask, None, False, packed)
            for tokens, states in zip(batch, hidden, strict=True):
                assert close(denoiser.logits(states[: len(tokens)]), tiny.logits(tokens))


def test_blocks_over_a_cache_equal_recomputing_all(pair: tuple[Tiny, DecoderDenoiser]) -> None:
    """Two rows with contexts of unequal length; the first context grows by a second encoding."""
    tiny, denoiser = pair
    one, two = row(3 * BLOCK, 4), row(2 * BLOCK, 5)
    first = torch.stack([one[:BLOCK], two[:BLOCK]])
    blocks = tiny.sees(2 * BLOCK, BLOCK)
    past = denoiser.encode(first, places(2, BLOCK), None, None)
    more = denoiser.encode(
        one[None, BLOCK : 2 * BLOCK],
        places(1, BLOCK, BLOCK),
        blocks[None, BLOCK:],
        (past[0][:, :, :1],),
    )
    room = torch.zeros_like(past[0])
    held = torch.cat([past[0], room], dim=4)
    held[:, :, :1, :, BLOCK:] = more[0]
    known = torch.tensor([[True] * 2 * BLOCK, [True] * BLOCK + [False] * BLOCK])
    keys = torch.cat([known, torch.ones(2, BLOCK, dtype=torch.bool)], dim=1)
    window = torch.stack([one[2 * BLOCK :], two[BLOCK:]])
    at = torch.stack([torch.arange(2 * BLOCK, 3 * BLOCK), torch.arange(BLOCK, 2 * BLOCK)])
    mask = keys[:, None, :].expand(-1, BLOCK, -1)
    hidden, _ = denoiser.forward(window, at, mask, (held,), False)
    for tokens, states in zip((one, two), hidden, strict=True):
        whole = tiny.logits(tokens, tiny.sees(len(tokens), BLOCK))
        assert close(denoiser.logits(states), whole[-BLOCK:])


def test_encoding_gives_the_forwards_cache_and_leaves_the_past_alone(
    pair: tuple[Tiny, DecoderDenoiser],
) -> None:
    _, denoiser = pair
    tokens, live = row(10, 6).view(2, 5), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    mask = live[:, None, :].expand(2, 5, 5)
    (past,) = denoiser.encode(tokens, places(2, 5), mask, None, live)
    _, kv = denoiser.forward(tokens, places(2, 5), mask, None, True, live)
    assert kv is not None
    assert torch.equal(past, kv[0])
    (group,) = denoiser.spec.kv
    assert past.shape == (group.layers, 2, 2, group.heads, 5, group.head_dim)
    before = past.clone()
    _, kv = denoiser.forward(tokens, places(2, 5, 5), None, (past,), True)
    assert kv is not None
    assert kv[0].shape == past.shape
    assert torch.equal(past, before)


def test_a_row_that_may_attend_to_nothing_gives_no_nan(pair: tuple[Tiny, DecoderDenoiser]) -> None:
    _, denoiser = pair
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[1] = False
    hidden, kv = denoiser.forward(row(8).view(2, 4), places(2, 4), mask, None, True)
    assert kv is not None
    assert bool(torch.isfinite(hidden).all())
    assert bool(torch.isfinite(kv[0]).all())


def test_positions_that_are_not_live_cost_nothing_and_give_zeros(
    pair: tuple[Tiny, DecoderDenoiser],
) -> None:
    _, denoiser = pair
    live = torch.tensor([[True, True, False, True]])
    mask = live[:, None, :].expand(1, 4, 4)
    hidden, _ = denoiser.forward(row(4)[None], places(1, 4), mask, None, False, live)
    assert bool((hidden[0, 2] == 0).all())
    assert bool((hidden[0, 3] != 0).any())


def test_long_inputs_are_attended_alike(
    pair: tuple[Tiny, DecoderDenoiser], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They copy shared keys instead of sharing them."""
    tiny, denoiser = pair
    monkeypatch.setattr(attention, "LONG", 5)
    tokens = row(6, 8)
    past = denoiser.encode(tokens[None, :BLOCK], places(1, BLOCK), None, None)
    sees = tiny.sees(6, BLOCK)
    assert close(logits(denoiser, tokens, sees), tiny.logits(tokens, sees))
    monkeypatch.setattr(attention, "LONG", 2)
    hidden, _ = denoiser.forward(tokens[None, BLOCK:], places(1, 2, BLOCK), None, past, False)
    assert close(denoiser.logits(hidden[0]), tiny.logits(tokens, sees)[BLOCK:])


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_bf16_stays_near_fp32(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> None:
    denoiser = load_denoiser(tiny.save(tmp_path_factory.mktemp("bf16")), device="cpu", dtype="bf16")
    tokens = row(8, 7)
    assert isinstance(denoiser, DecoderDenoiser)
    got = logits(denoiser, tokens, tiny.sees(8, tiny.block_length)).float()
    expected = tiny.logits(tokens)
    similarity = torch.cosine_similarity(got.flatten(), expected.flatten(), dim=0)
    assert similarity > 0.98
    assert denoiser.dtype == torch.bfloat16
