"""Single tokens as they stand inside a text."""

from __future__ import annotations

import pytest

from raydiff.text import Tokenizer
from tests.text.conftest import MAKERS, spec_for


def test_the_pieces_after_the_first_token_spell_the_text(chat_tokenizer: Tokenizer) -> None:
    text = "the small library reads and writes files"
    ids = chat_tokenizer.encode(text)
    first = chat_tokenizer.decode(ids[:1])
    rest = "".join(chat_tokenizer.piece(i)[0] for i in ids[1:])
    assert first + rest == chat_tokenizer.decode(ids)


@pytest.mark.parametrize("kind", ["bytes", "sentencepiece"])
def test_the_bytes_of_a_character_in_several_tokens_are_known(kind: str) -> None:
    backend = MAKERS[kind]()
    tokenizer = Tokenizer(backend, spec_for(backend))
    ids = tokenizer.encode("\u56db")
    pieces = [tokenizer.piece(i) for i in ids]
    assert bytes(byte for _, raw in pieces for byte in raw or ()).decode() == "\u56db"
    assert [text for text, _ in pieces] == ["\\xe5", "\\x9b", "\\x9b"]


def test_a_piece_that_is_whole_has_the_bytes_of_its_text(chat_tokenizer: Tokenizer) -> None:
    for token in chat_tokenizer.encode("files"):
        text, raw = chat_tokenizer.piece(token)
        assert raw == list(text.encode())
