"""Choosing among texts written as plain as can be: one row, no cache, sums over all choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from raydiff.models.denoiser import Denoiser

Choice = tuple[int, ...]


@dataclass(frozen=True)
class Plain:
    """What came out."""

    choice: Choice
    probability: float
    forwards: int


@torch.inference_mode()
def choose_plainly(
    denoiser: Denoiser, prompt: Sequence[int], choices: Sequence[Choice], steps: int
) -> Plain:
    """Greedily, for a fully bidirectional model of absorbing noise."""
    spec, end = denoiser.spec, denoiser.spec.end_ids[0]
    length = max(map(len, choices)) + 1
    left = {choice: [*choice, *[end] * (length - len(choice))] for choice in choices}
    canvas = [spec.mask_id] * length
    probability, forwards = 1.0, 0
    while len(left) > 1:
        filled = list(left.values())
        open_places = [p for p in range(length) if len({text[p] for text in filled}) > 1]
        canvas = [spec.mask_id if p in open_places else filled[0][p] for p in range(length)]
        logs = _log_probabilities(denoiser, [*prompt, *canvas])[len(prompt) :]
        scores = [sum(float(logs[p, text[p]]) for p in open_places) for text in filled]
        highest = max(scores)
        weights = [math.exp(score - highest) for score in scores]
        shares = [weight / sum(weights) for weight in weights]
        forwards += 1
        if forwards == steps:
            best = int(np.argmax(shares))
            return Plain(list(left)[best], probability * shares[best], forwards)
        place, token, share = _surest(filled, shares, open_places)
        probability *= share
        left = {choice: text for choice, text in left.items() if text[place] == token}
    return Plain(next(iter(left)), probability, forwards)


def _surest(
    filled: list[list[int]], shares: list[float], open_places: list[int]
) -> tuple[int, int, float]:
    """Place, token and its share; the first of equals (in fp32)."""
    best = (0, 0, -1.0)
    for place in open_places:
        for token in dict.fromkeys(text[place] for text in filled):
            share = sum(s for s, text in zip(shares, filled, strict=True) if text[place] == token)
            if np.float32(share) > np.float32(best[2]):
                best = (place, token, share)
    return best


def _log_probabilities(denoiser: Denoiser, tokens: list[int]) -> torch.Tensor:
    """(L, V) of one forward over the whole text."""
    spec, length = denoiser.spec, len(tokens)
    mask = torch.ones(1, length, length, dtype=torch.bool)
    hidden, _ = denoiser.forward(
        torch.tensor([tokens]), torch.arange(length)[None], mask, None, want_kv=False
    )
    logits = denoiser.logits(hidden[0]).double()
    if spec.shift:
        logits = torch.cat([logits[:1], logits[:-1]])
    logits[:, [spec.mask_id, *spec.forbidden_ids]] = -math.inf
    return logits.log_softmax(dim=-1)
