"""The training layout: copies of a summary share a document and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raydiff.models.bert import BertDenoiser
from raydiff.models.loading import random_denoiser
from raydiff.train.batches import Ints
from raydiff.train.objective import (
    LEAST_NOISE,
    Blocks,
    NoisedBatch,
    denoising_loss,
    draw_blocks,
    noise_batch,
)
from raydiff.train.tokenizer import BEGIN_ID, END_ID, MASK_ID

TARGET = 48


@pytest.fixture(scope="module")
def denoiser() -> BertDenoiser:
    return random_denoiser(target_position=TARGET)


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


DOCUMENTS = [ints(BEGIN_ID, 10, 11, END_ID), ints(BEGIN_ID, 12, 13, 14, 15, 16, END_ID)]
SUMMARIES = [ints(20, 21, 22), ints(*range(30, 42))]


def first_block(copies: int = 3, seed: int = 0, length: int = 16) -> NoisedBatch:
    blocks = Blocks(length, np.zeros(2, dtype=np.int64))
    generator = np.random.default_rng(seed)
    return noise_batch(DOCUMENTS, SUMMARIES, blocks, copies, TARGET, generator)


def later_block(seed: int = 0) -> NoisedBatch:
    blocks = Blocks(8, ints(0, 8))
    return noise_batch(DOCUMENTS, SUMMARIES, blocks, 2, TARGET, np.random.default_rng(seed))


def hidden_states(
    denoiser: BertDenoiser, batch: NoisedBatch, tokens_BS: torch.Tensor
) -> torch.Tensor:
    rows, width = batch.documents_BT.shape
    positions_BT = torch.arange(width).expand(rows, width)
    keys_BTT = batch.document_mask_BT[:, None, :].expand(rows, width, width)
    past = denoiser.encode(batch.documents_BT, positions_BT, keys_BTT, None)
    seen_BST = batch.document_mask_BT[:, None, :].expand(rows, tokens_BS.shape[1], width)
    mask_BSK = torch.cat([seen_BST, batch.mask_BSS], dim=2)
    return denoiser.forward(tokens_BS, batch.positions_BS, mask_BSK, past, False)[0]


def test_a_copy_does_not_see_another_copy(denoiser: BertDenoiser) -> None:
    batch = first_block()
    changed_BS = batch.tokens_BS.clone()
    changed_BS[:, 16:32] = 5
    before_BSD = hidden_states(denoiser, batch, batch.tokens_BS)
    after_BSD = hidden_states(denoiser, batch, changed_BS)
    assert torch.allclose(before_BSD[:, :16], after_BSD[:, :16], atol=1e-6)
    assert torch.allclose(before_BSD[:, 32:], after_BSD[:, 32:], atol=1e-6)
    assert not torch.allclose(before_BSD[:, 16:32], after_BSD[:, 16:32], atol=1e-3)


def test_a_later_block_sees_its_own_clean_blocks_and_they_do_not_see_it(
    denoiser: BertDenoiser,
) -> None:
    batch = later_block()
    clean_changed_BS, noised_changed_BS = batch.tokens_BS.clone(), batch.tokens_BS.clone()
    clean_changed_BS[:, 0] = 5
    noised_changed_BS[:, 8:] = 5
    before_BSD = hidden_states(denoiser, batch, batch.tokens_BS)
    clean_BSD = hidden_states(denoiser, batch, clean_changed_BS)
    noised_BSD = hidden_states(denoiser, batch, noised_changed_BS)
    assert not torch.allclose(before_BSD[1, 8:], clean_BSD[1, 8:], atol=1e-3)
    assert torch.allclose(before_BSD[0, 8:], clean_BSD[0, 8:], atol=1e-6), "row 0 trains block 0"
    assert torch.allclose(before_BSD[:, :8], noised_BSD[:, :8], atol=1e-6)


def test_positions_follow_the_target_position_and_the_block() -> None:
    batch = later_block()
    assert batch.positions_BS[0, 8:16].tolist() == list(range(TARGET, TARGET + 8))
    assert batch.positions_BS[1, 8:16].tolist() == list(range(TARGET + 8, TARGET + 16))


def test_only_hidden_tokens_are_scored_and_targets_are_the_summary() -> None:
    batch = first_block(copies=4)
    flat_S = batch.tokens_BS.flatten()
    assert bool((flat_S[batch.scored_M] == MASK_ID).all())
    rows_M, offsets_M = batch.scored_M // 64, (batch.scored_M % 64) % 16
    for row, offset, target in zip(rows_M, offsets_M, batch.targets_M, strict=True):
        summary = SUMMARIES[int(row)]
        expected = summary[int(offset)] if offset < len(summary) else END_ID
        assert target == expected


def test_shown_tokens_are_the_summary_followed_by_end_tokens() -> None:
    batch = first_block()
    shown_S = batch.tokens_BS[0, :16]
    clean_S = torch.tensor([20, 21, 22] + [END_ID] * 13)
    assert bool(((shown_S == clean_S) | (shown_S == MASK_ID)).all())


def test_weights_are_one_over_the_noise_level_and_sum_to_about_one() -> None:
    sums = []
    for seed in range(60):
        batch = first_block(copies=4, seed=seed)
        content = 4 * (len(SUMMARIES[0]) + 1 + len(SUMMARIES[1]) + 1)
        weights_M = batch.weights_M * content
        assert float(weights_M.max()) <= 1 / LEAST_NOISE + 1e-4
        is_text_M = batch.targets_M != END_ID
        sums.append(float(batch.weights_M[is_text_M].sum()) * content / (4 * 15))
    assert np.mean(sums) == pytest.approx(1.0, abs=0.1)


def test_the_same_generator_gives_the_same_batch() -> None:
    first, again = first_block(seed=5), first_block(seed=5)
    assert torch.equal(first.tokens_BS, again.tokens_BS)
    assert torch.equal(first.weights_M, again.weights_M)


def test_a_later_block_is_drawn_only_where_the_summary_reaches_it() -> None:
    lengths_B = ints(3, 9, 40)
    for seed in range(50):
        blocks = draw_blocks(lengths_B, np.random.default_rng(seed), 1.0, 0.5)
        assert bool((blocks.clean_B < lengths_B).all())
        assert bool((blocks.clean_B % blocks.length == 0).all())


def test_the_loss_has_a_gradient_for_every_weight_but_the_unused(denoiser: BertDenoiser) -> None:
    model = random_denoiser(target_position=TARGET, seed=1)
    trainable = BertDenoiser(model.model.requires_grad_(True), model.spec, fuse=False)
    loss, losses_M = denoising_loss(trainable, first_block())
    loss.backward()
    assert losses_M.shape == first_block().scored_M.shape
    missing = [name for name, p in trainable.model.named_parameters() if p.grad is None]
    assert missing == []


def test_what_follows_a_revealed_end_token_is_neither_scored_nor_attended_to() -> None:
    batch = first_block(copies=4, seed=3)
    tokens_BRL = batch.tokens_BS.view(2, 4, 16)
    live_BRL = batch.live_BS.view(2, 4, 16)
    for row in range(2):
        for copy in range(4):
            ends = (tokens_BRL[row, copy] == END_ID).nonzero()[:, 0].tolist()
            live = ends[0] + 1 if ends else 16
            assert live_BRL[row, copy].tolist() == [True] * live + [False] * (16 - live)
    dead_BS = ~batch.live_BS
    assert bool(dead_BS.any())
    assert not bool((batch.mask_BSS & dead_BS[:, None, :]).any())
    assert not bool(dead_BS.flatten()[batch.scored_M].any())
