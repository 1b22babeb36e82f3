"""Chunking and chat prompts."""

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


def test_chat_without_a_template_joins_the_contents(tokenizer: Tokenizer) -> None:
    messages = [{"role": "system", "content": "ab"}, {"role": "user", "content": "cd"}]
    ids = tokenizer.chat_prompt_ids(messages)
    assert ids == tokenizer.wrap(tokenizer.encode("ab\n\ncd"))
    with pytest.raises(UsageError, match="messages"):
        tokenizer.chat_prompt_ids([])


def test_a_chat_template_may_use_special_tokens_but_other_text_may_not() -> None:
    plain = character_tokenizer(random_denoiser().spec)
    template = "{% for m in messages %}<begin>{{ m.content }}<end>{% endfor %}"
    chat = Tokenizer(plain._backend, random_denoiser().spec, template)
    assert chat.chat_prompt_ids([{"role": "user", "content": "a"}]) == (1, 4, 2)
    assert 1 not in chat.encode("<begin>")


def test_a_template_that_refuses_is_a_usage_error(tokenizer: Tokenizer) -> None:
    chat = Tokenizer(
        tokenizer._backend, random_denoiser().spec, "{{ raise_exception('roles must alternate') }}"
    )
    with pytest.raises(UsageError, match="roles must alternate"):
        chat.chat_prompt_ids([{"role": "user", "content": "a"}])


def test_batches_encode_like_single_texts(tokenizer: Tokenizer) -> None:
    texts = ["hello", "", "a b"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(t) for t in texts]
