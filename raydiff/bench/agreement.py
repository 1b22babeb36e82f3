"""How much two runs of the same requests agree, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from statistics import fmean

Tokens = Sequence[Sequence[int]]


def agreement(tokens: Tokens, reference: Tokens) -> dict[str, float]:
    """Shares in [0, 1] over documents, which come in the same order.

    tokens_equal: positions that hold the same token, of all positions of the longer text.
    documents_equal: documents whose tokens are all the same. similarity: mean of difflib's ratio
    over documents, which forgives a shift.
    """
    pairs = list(zip(tokens, reference, strict=True))
    same = sum(sum(a == b for a, b in zip(*pair, strict=False)) for pair in pairs)
    positions = sum(max(map(len, pair)) for pair in pairs)
    return {
        "tokens_equal": same / positions if positions else 1.0,
        "documents_equal": fmean(tuple(a) == tuple(b) for a, b in pairs),
        "similarity": fmean(_similarity(a, b) for a, b in pairs),
    }


def _similarity(tokens: Sequence[int], reference: Sequence[int]) -> float:
    return SequenceMatcher(None, tokens, reference, autojunk=False).ratio()
