"""Greedy decoding of one text by the published loops, recomputing everything at every step.

A frame is what is denoised together: all new tokens under full attention, else one block of the
model's length, counted from the prompt's first token. Inside it, parts fill from left to right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Logits = Callable[[Tensor], Tensor]
"""Of a whole sequence, masks included, under the model's attention."""
Choose = Callable[[Tensor, int, int], list[int]]
"""(probabilities [open positions, V], step, how many were open at first) -> which commit."""


@dataclass(frozen=True)
class Loop:
    """How one family generates."""

    logits: Logits
    mask: int
    forbidden: Sequence[int]
    part_length: int
    frame_length: int | None = None
    """`None`: all new tokens are one frame."""
    shift: bool = False
    first_at_once: bool = False
    """A frame's first token also commits in the frame's first step."""

    def generate(self, prompt: Sequence[int], max_tokens: int, choose: Choose) -> list[int]:
        total = len(prompt) + max_tokens
        tokens = torch.tensor([*prompt, *([self.mask] * max_tokens)])
        for begin, end in self._frames(len(prompt), total):
            beyond = torch.full((max(0, end - total),), self.mask)
            text = torch.cat([tokens[:end], beyond])
            for part in range(begin, end, self.part_length):
                places = [
                    p
                    for p in range(part, min(part + self.part_length, end, total))
                    if p >= len(prompt)
                ]
                self._fill(text, places, begin if self.first_at_once else -1, choose)
            tokens[:end] = text[:total]
        return tokens[len(prompt) :].tolist()

    def _frames(self, begin: int, total: int) -> Iterator[tuple[int, int]]:
        if self.frame_length is None:
            yield begin, total
            return
        first = begin // self.frame_length * self.frame_length
        for start in range(first, total, self.frame_length):
            yield start, start + self.frame_length

    def _fill(self, text: Tensor, places: list[int], at_once: int, choose: Choose) -> None:
        """Commit tokens at `places` of `text`, in place."""
        left, step = list(places), 0
        while left:
            logits = self.logits(text)[[p - int(self.shift) for p in left]]
            logits[:, list(self.forbidden)] = -torch.inf
            probs = logits.softmax(-1)
            chosen = {left[i] for i in choose(probs, step, len(places))}
            chosen |= {at_once} & set(left) if step == 0 else set()
            for p, token in zip(left, probs.argmax(-1).tolist(), strict=True):
                if p in chosen:
                    text[p] = token
            left, step = [p for p in left if p not in chosen], step + 1


def by_quota(steps: int) -> Choose:
    """LLaDA: equal shares, the larger first, the most confident first."""

    def choose(probs: Tensor, step: int, opened: int) -> list[int]:
        base, extra = divmod(opened, steps)
        shares = [share for i in range(steps) if (share := base + (i < extra))]
        count = shares[step] if step < len(shares) else 1
        return probs.amax(-1).argsort(descending=True)[:count].tolist()

    return choose


def by_entropy(steps: int) -> Choose:
    """Dream: of m open positions the int(m (1 - s / t)) of lowest entropy, t falling from 1 to
    0.001 in equal steps; all that are left at the last one. Steps of none are passed over.
    """
    times = torch.linspace(1, 1e-3, steps + 1)

    def choose(probs: Tensor, step: int, opened: int) -> list[int]:
        counts, left = [], opened
        for i in range(steps):
            share = 1 - times[i + 1] / times[i]
            counts.append(int(left * share) if i < steps - 1 else left)
            left -= counts[-1]
        count = [count for count in counts if count][step]
        negative_entropy = (probs * (probs + 1e-10).log()).sum(-1)
        return negative_entropy.argsort(descending=True)[:count].tolist()

    return choose


def by_threshold(threshold: float) -> Choose:
    """Fast-dLLM, SDAR, LLaDA2: all that are sure enough, at least the surest."""

    def choose(probs: Tensor, step: int, opened: int) -> list[int]:
        confidence = probs.amax(-1)
        sure = (confidence >= threshold).nonzero()[:, 0].tolist()
        return [*sure, int(confidence.argmax())]

    return choose


def edited(
    logits: Logits,
    prompt: Sequence[int],
    max_tokens: int,
    block_length: int,
    mask: int,
    forbidden: Sequence[int],
    threshold: float,
    edit_threshold: float,
    max_edits: int,
) -> list[int]:
    """LLaDA2.1: beside filling masks, replace tokens of the block of whose successor the model is
    sure, until nothing changes or a full block was looked at `max_edits` times. The text must end
    with a block.
    """
    total = len(prompt) + max_tokens
    tokens = torch.tensor([*prompt, *([mask] * max_tokens)])
    for begin in range(len(prompt) // block_length * block_length, total, block_length):
        places = torch.arange(max(begin, len(prompt)), begin + block_length)
        looks = 0
        while True:
            old = tokens[places]
            is_open = old == mask
            looks += not is_open.any()
            if looks > max_edits:
                break
            scores = logits(tokens[: begin + block_length])[places]
            scores[:, list(forbidden)] = -torch.inf
            confidence, best = scores.softmax(-1).max(-1)
            commit = is_open & (confidence >= threshold)
            if is_open.any():
                commit[int(confidence.masked_fill(~is_open, -1).argmax())] = True
            edit = ~is_open & (confidence >= edit_threshold) & (best != old)
            tokens[places] = torch.where(commit | edit, best, old)
            if not is_open.any() and not edit.any():
                break
    return tokens[len(prompt) :].tolist()
