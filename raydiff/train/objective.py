"""The training objective: absorbing noise on a block of summary tokens, masked cross-entropy
weighted by 1/t.

Several noised copies of a summary are trained against one encoded document; the mask keeps them
apart. A layout is [clean earlier blocks | copy 1 | copy 2 | ...]. Source: block diffusion (Arriola
et al. 2025, BD3-LM, eq. 8). Shapes: B documents, T longest document, C clean positions, L block
length, R copies, S = C + R * L, M scored positions.
"""

# ruff: noqa: N815 - field names carry shapes
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from raydiff.models.denoiser import Denoiser
from raydiff.train.batches import Ints, TokenisedPairs, prompt
from raydiff.train.tokenizer import END_ID, MASK_ID, PAD_ID

FULL_NOISE_SHARE = 0.25
LEAST_NOISE = 0.15
FILL_KEPT = 0.25
FILL_WEIGHT = 0.4


@dataclass(frozen=True, kw_only=True)
class BlockSettings:
    """How blocks are drawn and noised."""

    copies: int = 3
    later_share: float = 0.15
    short_share: float = 0.75
    target_position: int = 448


@dataclass(frozen=True)
class NoisedBatch:
    """One training step's tensors; `scored_M` indexes the flattened [B * S] summary positions."""

    documents_BT: Tensor
    document_mask_BT: Tensor
    tokens_BS: Tensor
    positions_BS: Tensor
    live_BS: Tensor
    mask_BSS: Tensor
    scored_M: Tensor
    targets_M: Tensor
    weights_M: Tensor
    full_noise_M: Tensor


class BlockObjective:
    """Block diffusion with absorbing noise; implements `raydiff.train.trainer.Objective`."""

    def __init__(
        self,
        denoiser: Denoiser,
        pairs: TokenisedPairs,
        settings: BlockSettings,
        document_tokens: int,
    ) -> None:
        self._denoiser, self._pairs, self._settings = denoiser, pairs, settings
        self._document_tokens = document_tokens

    def draw(
        self, rows: Ints, generator: np.random.Generator, shared: np.random.Generator
    ) -> NoisedBatch:
        """See `Objective.draw`. Shards draw alike block lengths, so that no thread waits long."""
        settings = self._settings
        documents = [prompt(self._pairs.documents[row], self._document_tokens) for row in rows]
        summaries = [self._pairs.summaries[row] for row in rows]
        lengths = np.array([len(summary) + 1 for summary in summaries])
        blocks = draw_blocks(lengths, shared, settings.later_share, settings.short_share)
        return noise_batch(
            documents, summaries, blocks, settings.copies, settings.target_position, generator
        )

    def loss(self, shard: NoisedBatch) -> tuple[Tensor, Tensor]:
        """See `Objective.loss`."""
        loss, losses_M = denoising_loss(self._denoiser, shard)
        return loss, losses_M[shard.full_noise_M]


@dataclass(frozen=True)
class Blocks:
    """Which block each document trains: its length and, per document, the number of clean tokens
    before it.
    """

    length: int
    clean_B: Ints


def draw_blocks(
    lengths_B: Ints, generator: np.random.Generator, later_share: float, short_share: float
) -> Blocks:
    """Draws a batch's blocks: mostly the first, at times a later one after clean earlier blocks.

    `lengths_B` counts summary tokens and one end token.
    """
    if generator.random() < later_share:
        length = int(generator.choice([8, 16, 32]))
        last_B = (lengths_B - 1) // length
        return Blocks(length, length * generator.integers(0, last_B + 1))
    length = 16 if generator.random() < short_share else 32
    return Blocks(length, np.zeros_like(lengths_B))


def noise_batch(
    documents: list[Ints],
    summaries: list[Ints],
    blocks: Blocks,
    copies: int,
    target_position: int,
    generator: np.random.Generator,
) -> NoisedBatch:
    """Lays out and noises one batch; deterministic in `generator`."""
    rows, length, clean = len(documents), blocks.length, int(blocks.clean_B.max())
    documents_BT = pad(documents, PAD_ID)
    ends = int(blocks.clean_B.max()) + length
    filled_BX = np.stack([fill(summary, ends) for summary in summaries])
    offsets_BL = blocks.clean_B[:, None] + np.arange(length)
    block_BL: Ints = np.take_along_axis(filled_BX, offsets_BL, axis=1)
    noise_BR = _noise_levels(rows, copies, generator)
    hidden_BRL = generator.random((rows, copies, length)) < noise_BR[:, :, None]
    copies_BRL = np.where(hidden_BRL, MASK_ID, block_BL[:, None, :])
    tokens_BS = np.concatenate([filled_BX[:, :clean], copies_BRL.reshape(rows, -1)], axis=1)
    offsets_BS = np.concatenate(
        [np.broadcast_to(np.arange(clean), (rows, clean)), np.tile(offsets_BL, (1, copies))], axis=1
    )
    live_BRL = _live(block_BL, hidden_BRL)
    live_BS = np.concatenate(
        [np.arange(clean) < blocks.clean_B[:, None], live_BRL.reshape(rows, -1)], axis=1
    )
    weights_BRL = live_BRL * _weights(block_BL, hidden_BRL, noise_BR, generator)
    weights_BS = np.concatenate([np.zeros((rows, clean)), weights_BRL.reshape(rows, -1)], axis=1)
    targets_BS = np.concatenate([filled_BX[:, :clean], np.tile(block_BL, (1, copies))], axis=1)
    full_BS = np.concatenate(
        [np.zeros((rows, clean), bool), np.repeat(noise_BR >= 1, length, axis=1)], axis=1
    )
    scored_M = np.flatnonzero(weights_BS)
    content = copies * float(np.minimum(_content(block_BL), length).sum())
    return NoisedBatch(
        documents_BT=torch.from_numpy(documents_BT),
        document_mask_BT=torch.from_numpy(documents_BT != PAD_ID),
        tokens_BS=torch.from_numpy(tokens_BS),
        positions_BS=torch.from_numpy(offsets_BS + target_position),
        live_BS=torch.from_numpy(live_BS),
        mask_BSS=torch.from_numpy(_summary_mask(blocks, clean, copies) & live_BS[:, None, :]),
        scored_M=torch.from_numpy(scored_M),
        targets_M=torch.from_numpy(targets_BS.ravel()[scored_M]),
        weights_M=torch.from_numpy(weights_BS.ravel()[scored_M] / content).float(),
        full_noise_M=torch.from_numpy(full_BS.ravel()[scored_M]),
    )


def denoising_loss(denoiser: Denoiser, batch: NoisedBatch) -> tuple[Tensor, Tensor]:
    """The weighted loss and each scored position's cross-entropy [M], in nats."""
    rows, width = batch.documents_BT.shape
    positions_BT = torch.arange(width).expand(rows, width)
    keys_BTT = batch.document_mask_BT[:, None, :].expand(rows, width, width)
    past = denoiser.encode(batch.documents_BT, positions_BT, keys_BTT, None, batch.document_mask_BT)
    summary_width = batch.tokens_BS.shape[1]
    seen_BST = batch.document_mask_BT[:, None, :].expand(rows, summary_width, width)
    mask_BSK = torch.cat([seen_BST, batch.mask_BSS], dim=2)
    hidden_BSD, _ = denoiser.forward(
        batch.tokens_BS, batch.positions_BS, mask_BSK, past, False, batch.live_BS
    )
    hidden_MD = hidden_BSD.flatten(0, 1).index_select(0, batch.scored_M)
    losses_M = cross_entropy(denoiser.logits(hidden_MD).float(), batch.targets_M, reduction="none")
    return (losses_M * batch.weights_M).sum(), losses_M


def pad(rows: list[Ints], value: int) -> Ints:
    """Rows of unequal length as one array, filled up with `value`."""
    padded = np.full((len(rows), max(len(row) for row in rows)), value, dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def fill(summary: Ints, length: int) -> Ints:
    """A summary cut to `length`, or followed by end tokens up to it."""
    filled = np.full(length, END_ID, dtype=np.int64)
    filled[: len(summary)] = summary[:length]
    return filled


def _noise_levels(
    rows: int, copies: int, generator: np.random.Generator
) -> npt.NDArray[np.float64]:
    """t in (0, 1] for each copy, spread evenly over a document's copies; exactly 1 often, as
    decoding starts there.
    """
    start_B1 = generator.random((rows, 1))
    level_BR = (start_B1 + np.arange(copies) / copies) % 1.0
    scaled_BR = LEAST_NOISE + (1 - LEAST_NOISE) * level_BR / (1 - FULL_NOISE_SHARE)
    return np.minimum(scaled_BR, 1.0)


def _live(block_BL: Ints, hidden_BRL: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Positions up to each copy's first revealed end token: what follows can no longer count, and
    decoding drops it.
    """
    ends_BRL = (block_BL == END_ID)[:, None, :] & ~hidden_BRL
    live_BRL: npt.NDArray[np.bool_] = (ends_BRL.cumsum(axis=2) - ends_BRL) == 0
    return live_BRL


def _content(block_BL: Ints) -> Ints:
    """Tokens of each block up to and with its first end token."""
    content_B: Ints = (block_BL != END_ID).sum(1) + 1
    return content_B


def _weights(
    block_BL: Ints,
    hidden_BRL: npt.NDArray[np.bool_],
    noise_BR: npt.NDArray[np.float64],
    generator: np.random.Generator,
) -> npt.NDArray[np.float64]:
    """1/t on hidden positions; of the end tokens after the first only a few are scored, lightly."""
    fill_BRL = np.broadcast_to(
        (np.arange(block_BL.shape[1]) >= _content(block_BL)[:, None])[:, None, :], hidden_BRL.shape
    )
    kept_BRL = ~fill_BRL | (generator.random(hidden_BRL.shape) < FILL_KEPT)
    return hidden_BRL * kept_BRL * np.where(fill_BRL, FILL_WEIGHT, 1.0) / noise_BR[:, :, None]


def _summary_mask(blocks: Blocks, clean: int, copies: int) -> npt.NDArray[np.bool_]:
    """[B, S, S]: clean blocks see earlier clean blocks and themselves; a copy sees its document's
    clean part and itself.
    """
    rows, length = len(blocks.clean_B), blocks.length
    kind_S = np.concatenate(
        [np.zeros(clean, np.int64), np.repeat(np.arange(1, copies + 1), length)]
    )
    block_S = np.concatenate([np.arange(clean) // length, np.zeros(copies * length, np.int64)])
    own_SS = kind_S[:, None] == kind_S[None, :]
    causal_SS = own_SS & (block_S[:, None] >= block_S[None, :])
    to_clean_SS = (kind_S[:, None] > 0) & (kind_S[None, :] == 0)
    # A clean position past a document's own clean part is padding.
    real_BS = (kind_S[None, :] > 0) | (np.arange(len(kind_S))[None, :] < blocks.clean_B[:, None])
    mask_BSS: npt.NDArray[np.bool_] = (causal_SS | to_clean_SS)[None] & real_BS[:, None, :]
    assert mask_BSS.shape == (rows, len(kind_S), len(kind_S))
    return mask_BSS
