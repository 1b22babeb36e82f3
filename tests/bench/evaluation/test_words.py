"""Words of any script; of ASCII text, those of rouge-score."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.tokenize import tokenize

from raydiff.bench.evaluation.words import ngrams, words


@given(st.text(st.characters(codec="ascii")))
def test_words_of_ascii_text_are_those_of_rouge_score(text: str) -> None:
    assert list(words(text)) == tokenize(text, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Der Bär läuft über 3 Brücken.", ["der", "bär", "läuft", "über", "3", "brücken"]),
        ("Cafe\u0301 noir", ["café", "noir"]),  # an accent of its own joins its letter
        ("Быстрая, лиса!", ["быстрая", "лиса"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # vowel signs do not cut a word
        ("مكتبة صغيرة", ["مكتبة", "صغيرة"]),
        ("한국어 도서관", ["한국어", "도서관"]),
        ("小さな図書館。", list("小さな図書館")),  # no spaces: a letter is a word
        ("Python3で書く", ["python3", "で", "書", "く"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("— … !", []),
        ("", []),
    ],
)
def test_words_of_other_scripts(text: str, expected: list[str]) -> None:
    assert list(words(text)) == expected


def test_ngrams_are_runs_of_words() -> None:
    assert ngrams("abcd", 2) == [("a", "b"), ("b", "c"), ("c", "d")]
    assert ngrams("ab", 3) == []
