"""Agreement of two runs: shares of equal tokens and documents, and similarity."""

from __future__ import annotations

import pytest

from raydiff.bench.agreement import agreement


def test_the_same_tokens_agree_in_full() -> None:
    assert set(agreement([[1, 2], []], [(1, 2), ()]).values()) == {1.0}


def test_tokens_are_compared_place_by_place_over_the_longer_text() -> None:
    found = agreement([[1, 2, 3], [5]], [[1, 9, 3, 4], [5]])
    assert found["tokens_equal"] == pytest.approx(3 / 5)
    assert found["documents_equal"] == pytest.approx(1 / 2)


def test_similarity_forgives_a_shift() -> None:
    found = agreement([[7, 1, 2, 3, 4]], [[1, 2, 3, 4]])
    assert found["tokens_equal"] == 0
    assert found["similarity"] == pytest.approx(8 / 9)


def test_runs_of_other_documents_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        agreement([[1]], [[1], [2]])
