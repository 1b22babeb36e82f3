"""ROUGE, beside rouge-score itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from raydiff.bench.evaluation.overlap import KINDS, Rouge

texts = st.text(st.sampled_from("abcdef rRunning 1-.,\n"), max_size=60)


@given(texts, texts)
@settings(max_examples=60)
def test_scores_of_ascii_text_are_those_of_rouge_score(text: str, reference: str) -> None:
    stock = RougeScorer(list(KINDS), use_stemmer=True).score(reference, text)
    expected = {kind: score.fmeasure for kind, score in stock.items()}
    assert Rouge().score(text, reference) == pytest.approx(expected)


def test_scores_by_hand() -> None:
    found = Rouge().score("the cat sat", "the cat ran away")
    assert found["rouge1"] == pytest.approx(2 * 2 / (3 + 4))
    assert found["rouge2"] == pytest.approx(2 * 1 / (2 + 3))
    assert found["rougeL"] == pytest.approx(2 * 2 / (3 + 4))


@pytest.mark.parametrize("text", ["маленькая библиотека", "小さな図書館", "مكتبة صغيرة", "한국어"])
def test_other_scripts_are_compared_too(text: str) -> None:
    """rouge-score's own tokenizer finds no word in them and gives 0."""
    assert Rouge().score(text, text)["rouge1"] == 1
    assert 0 < Rouge().score(text + " x", text)["rouge1"] < 1


def test_an_empty_text_scores_0() -> None:
    assert Rouge().score("", "a library") == dict.fromkeys(KINDS, 0.0)
