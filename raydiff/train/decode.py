"""A plain reference decoder for validation: quota by confidence, one batch from start to end, no
scheduling.

Shapes: B rows, T longest prompt, L block length, C positions finished before the block, K keys, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raydiff.models.denoiser import Denoiser
from raydiff.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class ReferenceDecoding:
    """How the reference decoder runs; `end_bias` in nats."""

    steps: int = 16
    block_length: int = 32
    max_tokens: int = 32
    end_bias: float = 0.0


@torch.no_grad()
def decode(
    denoiser: Denoiser, prompts: Sequence[Sequence[int]], how: ReferenceDecoding
) -> list[list[int]]:
    """Summaries' tokens, end token excluded, for prompts that carry their special tokens."""
    spec = denoiser.spec
    assert spec.target_position is not None
    prompts_BT, keys_BT = _pad_prompts(prompts, spec.pad_id)
    positions_BT = torch.arange(prompts_BT.shape[1]).expand(prompts_BT.shape)
    past = denoiser.encode(prompts_BT, positions_BT, _expand(keys_BT, prompts_BT.shape[1]), None)
    done_BC = prompts_BT.new_zeros(len(prompts), 0)
    while done_BC.shape[1] < how.max_tokens:
        length = min(how.block_length, how.max_tokens - done_BC.shape[1])
        start = spec.target_position + done_BC.shape[1]
        positions_BL = torch.arange(start, start + length).expand(len(prompts), length)
        block_BL = _denoise_block(denoiser, positions_BL, keys_BT, past, how)
        done_BC = torch.cat([done_BC, block_BL], dim=1)
        ended_B = torch.isin(done_BC, torch.tensor(spec.end_ids)).any(1)
        if bool(ended_B.all()):
            break
        keys_BK = torch.cat([keys_BT, torch.ones_like(block_BL, dtype=torch.bool)], dim=1)
        block_kv = denoiser.encode(block_BL, positions_BL, _expand(keys_BK, length), past)
        past, keys_BT = torch.cat([past, block_kv], dim=4), keys_BK
    return [_cut(row, spec.end_ids) for row in done_BC.tolist()]


def _denoise_block(
    denoiser: Denoiser,
    positions_BL: Tensor,
    keys_BT: Tensor,
    past: Tensor,
    how: ReferenceDecoding,
) -> Tensor:
    spec = denoiser.spec
    tokens_BL = torch.full_like(positions_BL, spec.mask_id)
    open_BL = torch.ones_like(tokens_BL, dtype=torch.bool)
    mask_BLK = _expand(torch.cat([keys_BT, open_BL], dim=1), tokens_BL.shape[1])
    for step in range(how.steps):
        hidden_BLD, _ = denoiser.forward(tokens_BL, positions_BL, mask_BLK, past, False)
        logits_BLV = _allowed(denoiser.logits(hidden_BLD.flatten(0, 1)).float(), spec, how)
        best = torch.softmax(logits_BLV, dim=-1).max(dim=-1)
        confidence_BL = best.values.view_as(tokens_BL).masked_fill(~open_BL, -1.0)
        quota_B = torch.ceil(open_BL.sum(1) / (how.steps - step)).long()
        rank_BL = confidence_BL.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        commit_BL = (rank_BL < quota_B[:, None]) & open_BL
        tokens_BL = torch.where(commit_BL, best.indices.view_as(tokens_BL), tokens_BL)
        # What follows an end token is of no use: it closes, and the remaining steps serve the text
        # before it.
        ends_BL = torch.isin(tokens_BL, torch.tensor(spec.end_ids))
        after_BL = ends_BL.cumsum(1) > 0
        tokens_BL = tokens_BL.masked_fill(after_BL, spec.end_ids[0])
        open_BL = (tokens_BL == spec.mask_id) & ~after_BL
        if not bool(open_BL.any()):
            break
    return tokens_BL


def _allowed(logits_MV: Tensor, spec: ModelSpec, how: ReferenceDecoding) -> Tensor:
    logits_MV[:, [spec.mask_id, *spec.forbidden_ids]] = float("-inf")
    logits_MV[:, list(spec.end_ids)] -= how.end_bias
    return logits_MV


def _pad_prompts(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    width = max(len(prompt) for prompt in prompts)
    tokens_BT = torch.full((len(prompts), width), pad_id)
    keys_BT = torch.zeros(len(prompts), width, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        tokens_BT[row, : len(prompt)] = torch.tensor(prompt)
        keys_BT[row, : len(prompt)] = True
    return tokens_BT, keys_BT


def _expand(keys_BK: Tensor, queries: int) -> Tensor:
    return keys_BK[:, None, :].expand(-1, queries, -1)


def _cut(tokens: list[int], end_ids: tuple[int, ...]) -> list[int]:
    for index, token in enumerate(tokens):
        if token in end_ids:
            return tokens[:index]
    return tokens
