"""Text that grows with its tokens."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raydiff.text import Tokenizer
from raydiff.text.spelling import Spelling
from tests.text.conftest import KINDS, MAKERS, spec_for

TOKENIZERS = {kind: Tokenizer(MAKERS[kind](), spec_for(MAKERS[kind]())) for kind in KINDS}

runs = st.lists(st.lists(st.integers(0, 400), max_size=12), max_size=12)
"""Any tokens, those that the tokenizer does not know included, in pieces of any size."""


def split_text(text: str, sizes: list[int], tokenizer: Tokenizer) -> list[list[int]]:
    """The tokens of a text in pieces."""
    ids = tokenizer.encode(text)
    pieces = []
    for size in sizes:
        pieces.append(ids[:size])
        ids = ids[size:]
    return [*pieces, ids]


def check(tokenizer: Tokenizer, pieces: list[list[int]]) -> None:
    spelling = Spelling(tokenizer.decode)
    ids: list[int] = []
    finals = [""]
    for piece in pieces:
        ids += piece
        spelling.add(piece)
        assert spelling.text == tokenizer.decode(ids)
        finals.append(spelling.text[: spelling.final_length])
    for earlier, later in pairwise(finals):
        assert later.startswith(earlier)
    for characters in range(spelling.final_length + 1):
        count = spelling.tokens_for(characters)
        wanted = spelling.text[:characters]
        assert tokenizer.decode(ids[:count]).startswith(wanted)
        assert not characters or not tokenizer.decode(ids[: count - 1]).startswith(wanted)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pieces=runs)
def test_any_tokens_in_any_pieces_read_as_all_at_once(kind: str, pieces: list[list[int]]) -> None:
    """And what is final stays, and a character belongs to the token that completes it."""
    check(TOKENIZERS[kind], pieces)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=st.text("abc .,'\n\u20ac\u00fc\U0001f642\u6f22\ufffd", max_size=30),
    sizes=st.lists(st.integers(0, 5), max_size=12),
)
def test_texts_of_many_scripts_read_the_same_in_any_pieces(
    kind: str, text: str, sizes: list[int]
) -> None:
    check(TOKENIZERS[kind], split_text(text, sizes, TOKENIZERS[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_is_decoded_a_bounded_number_of_times(kind: str) -> None:
    """Token by token, thousands of them: the tokens decoded grow with the text, not its square."""
    tokenizer = TOKENIZERS[kind]
    decoded = 0

    def decode(ids: object) -> str:
        nonlocal decoded
        assert isinstance(ids, list)
        decoded += len(ids)
        return tokenizer.decode(ids)

    ids = tokenizer.encode("The small library reads files, 3 \u20ac each. " * 150)[:4000]
    spelling = Spelling(decode)
    for token in ids:
        spelling.add([token])
    assert spelling.text == tokenizer.decode(ids)
    assert decoded < 40 * len(ids)
