"""Signals of faithfulness that need no reference: what a text copies, adds and repeats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from raydiff.bench.evaluation.words import ngrams

MAX_PERIOD = 32
"""Longest run of words whose repetition is looked for."""


def fragments(source: Sequence[str], text: Sequence[str]) -> list[int]:
    """Lengths of the extractive fragments F(source, text) of Grusky, Naaman and Artzi (2018), in
    the text's order: from left to right the longest run of words that stands in the source.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(source):
        places[word].append(place)
    lengths: list[int] = []
    start = 0
    while start < len(text):
        length = max((_shared(source, p, text, start) for p in places[text[start]]), default=0)
        if length:
            lengths.append(length)
        start += max(length, 1)
    return lengths


def _shared(source: Sequence[str], place: int, text: Sequence[str], start: int) -> int:
    most = min(len(source) - place, len(text) - start)
    return next((n for n in range(most) if source[place + n] != text[start + n]), most)


def coverage(lengths: Sequence[int], text_words: int) -> float:
    """Share of the text's words that lie in a fragment. A word of the source is a fragment by
    itself, so that this is also the copy rate: the share of words that stand in the source."""
    return sum(lengths) / text_words


def density(lengths: Sequence[int], text_words: int) -> float:
    """Mean length of the fragment that a word of the text lies in, 0 for a word in none."""
    return sum(length * length for length in lengths) / text_words


def novel(source: Sequence[str], text: Sequence[str], size: int) -> float | None:
    """Share of the text's distinct n-grams that the source lacks; `None` if it has none."""
    own = set(ngrams(text, size))
    return len(own - set(ngrams(source, size))) / len(own) if own else None


def distinct(text: Sequence[str], size: int) -> float | None:
    """Distinct n-grams over all of the text; `None` if it has none."""
    all_of_it = ngrams(text, size)
    return len(set(all_of_it)) / len(all_of_it) if all_of_it else None


def repeated_run(text: Sequence[str]) -> int:
    """Words of the longest stretch that only says again what stands right before it: 1 in "and
    and", 4 in "to be to be to be". Repetitions of more than `MAX_PERIOD` words are not seen."""
    longest = 0
    for period in range(1, min(MAX_PERIOD, len(text) // 2) + 1):
        run = 0
        for place in range(period, len(text)):
            run = run + 1 if text[place] == text[place - period] else 0
            # a stretch shorter than its period is a coincidence, not a repetition
            longest = max(longest, run if run >= period else 0)
    return longest
