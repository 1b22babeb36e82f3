"""Documents of mixed lengths."""

from __future__ import annotations

import math
from statistics import median

import pytest

from raydiff.bench.lengths import documents_of, mixed_lengths
from raydiff.errors import InputError, UsageError
from raydiff.text import Tokenizer

TEXTS = ["a small library to read files. ", "tools for the web", "x"]


def test_lengths_lie_between_their_limits_and_are_uniform_in_their_logarithm() -> None:
    lengths = mixed_lengths(4000, 10, 4000)
    assert min(lengths) >= 10
    assert max(lengths) <= 4000
    assert median(lengths) == pytest.approx(math.sqrt(10 * 4000), rel=0.1)


def test_the_same_seed_gives_the_same_lengths() -> None:
    assert mixed_lengths(50, 10, 4000, seed=1) == mixed_lengths(50, 10, 4000, seed=1)
    assert mixed_lengths(50, 10, 4000, seed=1) != mixed_lengths(50, 10, 4000, seed=2)


@pytest.mark.parametrize("limits", [(0, 10), (11, 10)])
def test_limits_that_are_no_lengths_are_refused(limits: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="mixed"):
        mixed_lengths(5, *limits)


def test_a_document_has_the_tokens_asked_for() -> None:
    tokenizer = Tokenizer.load("random:tiny-sdar")
    lengths = [1, 17, 500]
    texts = documents_of(lengths, TEXTS, tokenizer)
    assert [len(tokenizer.encode(text)) for text in texts] == lengths


def test_documents_are_made_of_the_corpus() -> None:
    (text,) = documents_of([60], TEXTS, Tokenizer.load("random:tiny-sdar"))
    assert TEXTS[1] in text


def test_a_corpus_without_text_is_refused() -> None:
    with pytest.raises(InputError, match="text"):
        documents_of([5], [" "], Tokenizer.load("random:tiny-sdar"))
