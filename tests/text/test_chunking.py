"""Long texts in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.errors import UsageError
from raydiff.models.loading import random_denoiser
from raydiff.text import Tokenizer, split_into_chunks
from tests.engine.conftest import LETTERS, character_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return character_tokenizer(random_denoiser().spec)


@settings(deadline=None)
@given(text=st.text(LETTERS, max_size=300), size=st.integers(4, 50), overlap=st.integers(0, 2))
def test_chunks_fit_and_cover_the_text_in_order(
    tokenizer: Tokenizer, text: str, size: int, overlap: int
) -> None:
    chunks = split_into_chunks(tokenizer, text, size, overlap)
    assert all(len(tokenizer.encode(chunk)) <= size for chunk in chunks)
    position = 0
    for chunk in chunks:
        start = text.find(chunk, max(0, position - overlap))
        assert 0 <= start <= position
        position = start + len(chunk)
    assert position == len(text)


def test_a_short_text_is_one_chunk(tokenizer: Tokenizer) -> None:
    assert split_into_chunks(tokenizer, "hello", 10) == ["hello"]
    assert split_into_chunks(tokenizer, "", 10) == [""]


def test_cuts_fall_on_sentence_ends(tokenizer: Tokenizer) -> None:
    chunks = split_into_chunks(tokenizer, "One two three. Four five six. Seven eight.", 20)
    assert [c.strip() for c in chunks] == ["One two three.", "Four five six.", "Seven eight."]


def test_an_overlap_as_long_as_the_chunk_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="overlap_tokens"):
        split_into_chunks(tokenizer, "hello", 10, 6)
