"""Long texts in pieces that fit a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator

from raydiff.errors import UsageError, invalid
from raydiff.text.tokenizer import Tokenizer

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def split_into_chunks(
    tokenizer: Tokenizer, text: str, max_tokens: int, overlap_tokens: int = 0
) -> list[str]:
    """Cut `text` into chunks of at most `max_tokens` tokens that cover it in order.

    Cuts fall on paragraph ends where one lies in the second half of a chunk, else on sentence
    ends, else between tokens. Neighbours share about `overlap_tokens` tokens.

    Raises:
        UsageError: `overlap_tokens` is not below half of `max_tokens`.
    """
    if not 0 <= overlap_tokens <= max_tokens // 2:
        expected = f"at least 0 and at most half of max_tokens ({max_tokens})"
        raise UsageError(
            invalid("overlap_tokens", expected=expected, got=overlap_tokens), "overlap_tokens"
        )
    spans = tokenizer.offsets(text)
    if len(spans) <= max_tokens:
        return [text]
    return list(_chunks(text, spans, max_tokens, overlap_tokens))


def _chunks(
    text: str, spans: list[tuple[int, int]], max_tokens: int, overlap_tokens: int
) -> Iterator[str]:
    first = 0
    while first < len(spans):
        last = min(first + max_tokens, len(spans))
        begin = spans[first][0]
        if last == len(spans):
            yield text[begin:]
            return
        end = _cut(text, begin, spans[last][0])
        last = _token_at(spans, end, first, last)
        yield text[begin : spans[last][0]]
        first = max(first + 1, last - overlap_tokens)


def _cut(text: str, begin: int, end: int) -> int:
    middle = (begin + end) // 2
    for boundary in (_PARAGRAPH, _SENTENCE):
        ends = [m.end() for m in boundary.finditer(text, middle, end)]
        if ends:
            return ends[-1]
    return end


def _token_at(spans: list[tuple[int, int]], end: int, first: int, last: int) -> int:
    """The first token that begins at or after character `end`, else `last`."""
    while last > first + 1 and spans[last - 1][0] >= end:
        last -= 1
    return last
