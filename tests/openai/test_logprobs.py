"""Log-probabilities in both formats, where tokens are no whole characters."""

from __future__ import annotations

import math

import pytest

from raydiff.openai.logprobs import Pieces, chat_logprobs, completion_logprobs
from raydiff.request import TokenLogprob
from raydiff.text import Tokenizer

TEXT = "aü\U0001f600b"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """One of bytes: a token is a byte."""
    return Tokenizer.load("random:tiny-sdar")


@pytest.fixture(scope="module")
def items(tokenizer: Tokenizer) -> list[TokenLogprob]:
    ids = tokenizer.encode(TEXT)
    assert len(ids) == len(TEXT.encode())
    return [TokenLogprob(token_id=i, logprob=-0.5, top=((i, -0.5), (ids[0], -9.0))) for i in ids]


def test_the_bytes_of_a_chats_tokens_spell_its_text(
    tokenizer: Tokenizer, items: list[TokenLogprob]
) -> None:
    content = chat_logprobs(items, Pieces(tokenizer))["content"]
    assert bytes(byte for item in content for byte in item["bytes"]).decode() == TEXT
    assert [item["token"] for item in content[:3]] == ["a", "\\xc3", "\\xbc"]
    assert content[1]["top_logprobs"][0] == {"token": "\\xc3", "logprob": -0.5, "bytes": [0xC3]}


def test_offsets_count_characters_and_not_bytes(
    tokenizer: Tokenizer, items: list[TokenLogprob]
) -> None:
    offsets = completion_logprobs(items, Pieces(tokenizer))["text_offset"]
    assert offsets == [0, 1, 1, 2, 2, 2, 2, 3]


def test_tokens_in_several_pieces_of_a_stream_are_those_of_the_whole(
    tokenizer: Tokenizer, items: list[TokenLogprob]
) -> None:
    whole = completion_logprobs(items, Pieces(tokenizer))
    pieces = Pieces(tokenizer)
    parts = [completion_logprobs(items[:2], pieces), completion_logprobs(items[2:], pieces)]
    for name in ("tokens", "text_offset", "top_logprobs"):
        assert parts[0][name] + parts[1][name] == whole[name]


def test_what_is_impossible_has_a_number_that_json_knows(tokenizer: Tokenizer) -> None:
    item = TokenLogprob(token_id=tokenizer.encode("a")[0], logprob=-math.inf)
    (entry,) = chat_logprobs([item], Pieces(tokenizer))["content"]
    assert entry["logprob"] == -9999.0


def test_a_word_of_several_tokens_has_its_spaces(tokenizer: Tokenizer) -> None:
    pieces = Pieces(tokenizer)
    assert [pieces.next(i)[0] for i in tokenizer.encode("a b")] == ["a", " ", "b"]
    assert pieces.other(tokenizer.encode(" ")[0]) == (" ", [0x20])
