"""Documents of mixed lengths, made of the sentences of a corpus: log-uniform, seeded."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

from raydiff.errors import InputError, UsageError, invalid
from raydiff.text import Tokenizer


def mixed_lengths(count: int, least: int, most: int, seed: int = 0) -> list[int]:
    """Numbers of tokens whose logarithms are uniform between those of `least` and `most`.

    Raises:
        UsageError: the limits are no lengths.
    """
    if not 1 <= least <= most:
        message = invalid("mixed", expected="two lengths, the smaller first", got=(least, most))
        raise UsageError(message, "mixed")
    chance = random.Random(seed)
    low, high = math.log(least), math.log(most)
    return [min(most, max(least, round(math.exp(chance.uniform(low, high))))) for _ in range(count)]


def documents_of(
    lengths: Sequence[int], texts: Sequence[str], tokenizer: Tokenizer, seed: int = 0
) -> list[str]:
    """A document of each length in tokens, of whole texts in random order; the last one is cut.

    A token that merges across the seam of two texts makes a document that much shorter.
    """
    endless = _shuffled(texts, random.Random(seed))
    return [_document(length, endless, tokenizer) for length in lengths]


def _document(length: int, texts: Iterator[str], tokenizer: Tokenizer) -> str:
    text = next(texts)
    spans = tokenizer.offsets(text)
    while len(spans) < length:
        text += "\n\n" + next(texts)
        spans = tokenizer.offsets(text)
    return text[: spans[length - 1][1]]


def _shuffled(texts: Sequence[str], chance: random.Random) -> Iterator[str]:
    order = [text for text in texts if text.strip()]
    if not order:
        raise InputError("input: expected at least one document with text.", "input")
    while True:
        chance.shuffle(order)
        yield from order
