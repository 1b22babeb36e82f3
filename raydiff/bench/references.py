"""The plain reference for the engine's speed: recompute everything at every step.

It runs the stock `BertForMaskedLM` over prompt and blocks, for a fixed batch of rows, with logits
of all positions and no cache, under the engine's own rules: the same forbidden tokens, commit
rule and end handling. In float32 it must write the same tokens as the engine (a test holds it
to that).

Shapes: B rows, S positions (padded prompt, then blocks), L positions of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import BertForMaskedLM

from raydiff.diffusion.commit import commit_mask, end_run
from raydiff.diffusion.sampling import adjust_end, forbid, greedy
from raydiff.diffusion.schedule import quotas
from raydiff.errors import UsageError
from raydiff.families import load_spec, model_path
from raydiff.request import Decoding

PAD_BLOCK = 1 << 30
"""Block number of padding: above all others, so that nothing attends to it."""


class Recompute:
    """Greedy decoding of fixed batches, everything recomputed at each step."""

    def __init__(self, path_or_name: str, *, device: torch.device, dtype: torch.dtype) -> None:
        self.spec = load_spec(path_or_name)
        model = BertForMaskedLM.from_pretrained(str(model_path(path_or_name)), dtype=dtype)
        self.model = model.to(device).eval()
        self.device = device
        self.forwards = 0
        """Forwards so far, each over a whole batch."""

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[tuple[int, ...]], decoding: Decoding
    ) -> list[tuple[int, ...]]:
        """Generated tokens of each prompt, without the end token; `prompts` are one batch."""
        d = self.spec.resolve(decoding)
        assert d.max_tokens is not None
        assert d.block_length is not None
        _check_supported(d)
        tokens, positions, blocks = self._prompt_columns(prompts)
        for start in range(0, d.max_tokens, d.block_length):
            tokens, positions, blocks = self._append_block(tokens, positions, blocks, start, d)
            self._denoise_block(tokens, positions, blocks, d, beyond=d.max_tokens - start)
        generated = tokens[:, max(map(len, prompts)) :][:, : d.max_tokens]
        return [self._until_end(row) for row in generated.tolist()]

    def _prompt_columns(self, prompts: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, positions and block numbers (prompt: -1), each (B, longest prompt)."""
        longest = max(map(len, prompts))
        padded = [(*p, *[self.spec.pad_id] * (longest - len(p))) for p in prompts]
        numbers = [[-1] * len(p) + [PAD_BLOCK] * (longest - len(p)) for p in prompts]
        tokens = torch.tensor(padded, device=self.device)
        positions = torch.arange(longest, device=self.device).expand_as(tokens)
        return tokens, positions, torch.tensor(numbers, device=self.device)

    def _append_block(
        self, tokens: Tensor, positions: Tensor, blocks: Tensor, start: int, d: Decoding
    ) -> tuple[Tensor, Tensor, Tensor]:
        assert self.spec.target_position is not None
        assert d.block_length is not None
        shape = (tokens.shape[0], d.block_length)
        offsets = torch.arange(start, start + d.block_length, device=self.device)
        masked = torch.full(shape, self.spec.mask_id, device=self.device)
        where = (self.spec.target_position + offsets).expand(shape)
        number = torch.full(shape, start // d.block_length, device=self.device)
        return (
            torch.cat([tokens, masked], dim=1),
            torch.cat([positions, where], dim=1),
            torch.cat([blocks, number], dim=1),
        )

    def _denoise_block(
        self, tokens: Tensor, positions: Tensor, blocks: Tensor, d: Decoding, beyond: int
    ) -> None:
        """Denoise the last block of `tokens` in place."""
        length = d.block_length
        assert length is not None
        end_id = self.spec.end_ids[0]
        block = tokens[:, -length:]
        is_open = torch.ones_like(block, dtype=torch.bool)
        is_open[:, beyond:] = False
        block[~is_open] = end_id
        ended = (tokens[:, :-length] == end_id) & (blocks[:, :-length] >= 0)
        ended &= blocks[:, :-length] < PAD_BLOCK
        is_open &= ~ended.any(dim=1, keepdim=True)
        threshold = float("inf") if d.threshold is None else d.threshold
        shares = quotas(min(length, beyond), d.steps) if d.steps else ()
        step = 0
        while bool(is_open.any()):
            if self.spec.drop_after_end:
                blocks[:, -length:].masked_fill_(_after_end(block, is_open, end_id), PAD_BLOCK)
            candidates, confidence = self._candidates(tokens, positions, blocks, length)
            at_least = is_open.new_full(
                (len(tokens),), shares[step] if shares else 1, dtype=torch.int64
            )
            limit = is_open.new_full((len(tokens),), threshold, dtype=torch.float32)
            commit = commit_mask(confidence, is_open, at_least, limit)
            commit |= self._end_run(torch.where(is_open, candidates, block), confidence, is_open)
            block[commit] = candidates[commit]
            is_open &= ~commit
            after = _after_end(block, is_open, end_id)
            block[after & is_open] = end_id
            is_open &= ~after
            step += 1

    def _candidates(
        self, tokens: Tensor, positions: Tensor, blocks: Tensor, length: int
    ) -> tuple[Tensor, Tensor]:
        """The most likely token and its confidence at each position of the last block."""
        assert self.spec.target_position is not None
        may_attend = blocks[:, None, :] <= blocks[:, :, None]
        logits: Tensor = self.model(
            input_ids=tokens,
            token_type_ids=(positions >= self.spec.target_position).long(),
            position_ids=positions,
            attention_mask=may_attend[:, None],
        ).logits
        self.forwards += 1
        flat = logits[:, -length:].reshape(-1, logits.shape[-1]).float()
        spec = self.spec
        forbid(flat, torch.tensor([spec.mask_id, *spec.forbidden_ids], device=self.device))
        ends = torch.tensor(spec.end_ids, device=self.device)
        never = torch.zeros(len(flat), dtype=torch.bool, device=self.device)
        adjust_end(flat, ends, spec.end_bias, never)
        candidates, confidence = greedy(flat)
        return candidates.view(len(tokens), length), confidence.view(len(tokens), length)

    def _end_run(self, tokens: Tensor, confidence: Tensor, is_open: Tensor) -> Tensor:
        if self.spec.end_threshold is None:
            return torch.zeros_like(is_open)
        is_end = torch.isin(tokens, torch.tensor(self.spec.end_ids, device=self.device))
        return end_run(is_end, confidence, is_open, self.spec.end_threshold)

    def _until_end(self, row: list[int]) -> tuple[int, ...]:
        ends = [i for i, token in enumerate(row) if token in self.spec.end_ids]
        return tuple(row[: ends[0]] if ends else row)


def _after_end(block: Tensor, is_open: Tensor, end_id: int) -> Tensor:
    """Positions after the first committed end token of each row."""
    is_end = (block == end_id) & ~is_open
    return (is_end.cumsum(dim=1) - is_end.long()) > 0


def _check_supported(d: Decoding) -> None:
    """The reference stays plain: greedy, and texts end at the end token or at max_tokens."""
    if d.temperature or d.min_tokens or d.ignore_eos or d.stop:
        raise UsageError(f"The recomputing reference decodes greedily without stops, got {d}.")
