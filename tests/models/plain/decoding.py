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
"""(confidence of the part's open positions, step, how many were open at first) -> which commit."""


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
            confidence, best = logits.softmax(-1).max(-1)
            chosen = {left[i] for i in choose(confidence, step, len(places))}
            chosen |= {at_once} & set(left) if step == 0 else set()
            for p, token in zip(left, best.tolist(), strict=True):
                if p in chosen:
                    text[p] = token
            left, step = [p for p in left if p not in chosen], step + 1


def by_quota(steps: int) -> Choose:
    """LLaDA: equal shares, the larger first, the most confident first."""

    def choose(confidence: Tensor, step: int, opened: int) -> list[int]:
        base, extra = divmod(opened, steps)
        shares = [share for i in range(steps) if (share := base + (i < extra))]
        count = shares[step] if step < len(shares) else 1
        return confidence.argsort(descending=True)[:count].tolist()

    return choose


def by_threshold(threshold: float) -> Choose:
    """Fast-dLLM, SDAR, LLaDA2: all that are sure enough, at least the surest."""

    def choose(confidence: Tensor, step: int, opened: int) -> list[int]:
        sure = (confidence >= threshold).nonzero()[:, 0].tolist()
        return [*sure, int(confidence.argmax())]

    return choose
