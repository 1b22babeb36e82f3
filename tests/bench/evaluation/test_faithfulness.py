"""Copying, novelty and repetition, on cases that can be checked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydiff.bench.evaluation.faithfulness import (
    MAX_PERIOD,
    coverage,
    density,
    distinct,
    fragments,
    novel,
    repeated_run,
)

_SENTENCE = "a small web server that is written in c and serves static files"
SOURCE = _SENTENCE.split()

few_words = st.lists(st.sampled_from("abc"), max_size=12)


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("small web server written in c", [3, 3]),
        ("fast web server in rust", [2, 1]),  # "web server", "in"
        ("a small web server that is", [6]),
        ("nothing of it", []),
        ("files files", [1, 1]),
    ],
)
def test_fragments_are_the_longest_runs_of_the_source(text: str, lengths: list[int]) -> None:
    assert fragments(SOURCE, text.split()) == lengths


def test_the_longest_run_is_taken_wherever_it_stands() -> None:
    assert fragments(["a", "b", "x", "a", "b", "c"], ["a", "b", "c"]) == [3]


def test_coverage_and_density_as_published() -> None:
    """Grusky et al. (2018): sums of |f| and of |f| squared over the words of the summary."""
    text = ["fast", "web", "server", "in", "rust"]
    lengths = fragments(SOURCE, text)
    assert coverage(lengths, len(text)) == pytest.approx(3 / 5)
    assert density(lengths, len(text)) == pytest.approx((4 + 1) / 5)
    assert density(fragments(SOURCE, SOURCE), len(SOURCE)) == len(SOURCE)


@given(few_words, few_words.filter(bool))
def test_coverage_is_the_share_of_words_that_stand_in_the_source(
    source: list[str], text: list[str]
) -> None:
    copied = sum(word in source for word in text) / len(text)
    assert coverage(fragments(source, text), len(text)) == pytest.approx(copied)


@given(few_words, few_words)
def test_fragments_are_found_as_the_published_procedure_finds_them(
    source: list[str], text: list[str]
) -> None:
    """The two loops of the paper's figure, which walk all of the source for each word."""
    expected, i = [], 0
    while i < len(text):
        longest, j = 0, 0
        while j < len(source):
            if text[i] == source[j]:
                k = 0
                while i + k < len(text) and j + k < len(source) and text[i + k] == source[j + k]:
                    k += 1
                longest, j = max(longest, k), j + k
            else:
                j += 1
        expected += [longest] if longest else []
        i += max(longest, 1)
    found = fragments(source, text)
    # the paper skips over a match in the source and so may miss a longer one inside it
    assert sum(found) == sum(expected)
    assert max(found, default=0) >= max(expected, default=0)


def test_novel_ngrams_are_counted_once_each() -> None:
    text = ["fast", "web", "server", "fast", "web", "server"]
    assert novel(SOURCE, text, 1) == pytest.approx(1 / 3)  # fast; web, server
    assert novel(SOURCE, text, 2) == pytest.approx(2 / 3)  # fast web, server fast; web server
    assert novel(SOURCE, ["web"], 2) is None


def test_distinct_ngrams() -> None:
    assert distinct(["a", "b", "a", "b"], 1) == 0.5
    assert distinct(["a", "b", "a", "b"], 2) == pytest.approx(2 / 3)
    assert distinct([], 1) is None


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("tracing and and tracing", 1),
        ("library library library library", 3),
        ("to be to be to be", 4),
        ("a b c a b", 0),  # b and c lie between: nothing is said twice in a row
        ("a b c d a b c d", 4),
        ("", 0),
    ],
)
def test_a_repeated_run_says_again_what_stands_before_it(text: str, run: int) -> None:
    assert repeated_run(text.split()) == run


def test_far_repetitions_are_not_looked_for() -> None:
    numbers = [str(i) for i in range(MAX_PERIOD + 1)]
    assert repeated_run([*numbers, *numbers]) == 0
    assert repeated_run([*numbers[1:], *numbers[1:]]) == MAX_PERIOD
