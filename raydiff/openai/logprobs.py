"""Log-probabilities in the formats of the two dialects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from raydiff.request import TokenLogprob
from raydiff.text import Tokenizer
from raydiff.text.spelling import REPLACEMENT, Spelling

_LOWEST = -9999.0
"""What OpenAI writes for minus infinity, which JSON lacks."""

Piece = tuple[str, list[int] | None]
"""A token's text, and its bytes where they are known."""


class Pieces:
    """The texts of a row's tokens, as they come."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._spelling = Spelling(tokenizer.decode)

    @property
    def offset(self) -> int:
        """Characters of the tokens so far."""
        return self._spelling.final_length

    def next(self, token: int) -> Piece:
        """The piece that a token adds to the text. Of a character that it only begins or
        continues, or completes, it is the bytes that count."""
        whole = len(self._spelling.text) == self.offset
        before = self.offset
        self._spelling.add([token])
        added = self._spelling.text[before:]
        if whole and REPLACEMENT not in added:
            return added, list(added.encode())
        return self._tokenizer.piece(token)

    def other(self, token: int) -> Piece:
        """The piece of a token that did not come next."""
        return self._tokenizer.piece(token)


def chat_logprobs(items: Sequence[TokenLogprob], pieces: Pieces) -> dict[str, Any]:
    """`choices[].logprobs` of chats."""
    content = []
    for item in items:
        entry = _entry(pieces.next(item.token_id), item.logprob)
        entry["top_logprobs"] = [_entry(pieces.other(i), logprob) for i, logprob in item.top]
        content.append(entry)
    return {"content": content, "refusal": None}


def completion_logprobs(items: Sequence[TokenLogprob], pieces: Pieces) -> dict[str, Any]:
    """`choices[].logprobs` of completions. `top_logprobs` always has the token itself too."""
    offsets, tokens, tops = [], [], []
    for item in items:
        offsets.append(pieces.offset)
        token = pieces.next(item.token_id)[0]
        tokens.append(token)
        tops.append({**dict(_tops(item, pieces)), token: _number(item.logprob)})
    return {
        "tokens": tokens,
        "token_logprobs": [_number(item.logprob) for item in items],
        "top_logprobs": tops,
        "text_offset": offsets,
    }


def _tops(item: TokenLogprob, pieces: Pieces) -> Iterator[tuple[str, float]]:
    for token, logprob in reversed(item.top):  # of tokens that read alike the likelier counts
        if token != item.token_id:
            yield pieces.other(token)[0], _number(logprob)


def _entry(piece: Piece, logprob: float) -> dict[str, Any]:
    return {"token": piece[0], "logprob": _number(logprob), "bytes": piece[1]}


def _number(logprob: float) -> float:
    return max(logprob, _LOWEST) if math.isfinite(logprob) else _LOWEST
