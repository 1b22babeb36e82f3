"""Where texts may be cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.text import Tokenizer
from raydiff.text.segments import Rank, count_tokens, units
from tests.text.conftest import KINDS, MAKERS, spec_for

TOKENIZERS = {kind: Tokenizer(MAKERS[kind](), spec_for(MAKERS[kind]())) for kind in KINDS}


def cut(text: str) -> list[tuple[str, Rank]]:
    found = units(TOKENIZERS["bytes"], text, 1000)
    return [(text[unit.begin : unit.end], unit.rank) for unit in found]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=300), most=st.integers(1, 20))
def test_units_cover_the_text_without_gaps(kind: str, text: str, most: int) -> None:
    found = list(units(TOKENIZERS[kind], text, most))
    assert "".join(text[unit.begin : unit.end] for unit in found) == text
    assert all(before.end == after.begin for before, after in itertools.pairwise(found))
    assert all(unit.end > unit.begin for unit in found)


def test_paragraphs_sentences_and_lines_are_told_apart() -> None:
    assert cut("One. Two\nthree!\n\nFour? (Five.) Six") == [
        ("One. ", Rank.SENTENCE),
        ("Two\n", Rank.LINE),
        ("three!\n\n", Rank.PARAGRAPH),
        ("Four? ", Rank.SENTENCE),
        ("(Five.) ", Rank.SENTENCE),
        ("Six", Rank.PARAGRAPH),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "It costs 3.14 dollars",
        "Mr. Smith and Dr. Who",
        "J. R. R. Tolkien wrote",
        "e.g. this one",
        "The U.S. Senate",
        "approx. five of them",
        "see Fig. 3 and No. 7",
        "wait... what",
        "version 1.2.3 of it",
    ],
)
def test_abbreviations_decimals_and_lower_case_end_no_sentence(text: str) -> None:
    assert cut(text) == [(text, Rank.PARAGRAPH)]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("一。二！三？四", ["一。", "二！", "三？", "四"]),
        ("「一。」二", ["「一。」", "二"]),
        ("真的！！！好", ["真的！！！", "好"]),
        ("यह एक है। वह दो है।", ["यह एक है। ", "वह दो है।"]),
        ("هل هذا؟ نعم", ["هل هذا؟ ", "نعم"]),
    ],
)
def test_other_scripts_have_their_own_full_stops(text: str, pieces: list[str]) -> None:
    assert [piece for piece, _ in cut(text)] == pieces


@pytest.mark.parametrize("kind", KINDS)
def test_long_sentences_come_in_words(kind: str) -> None:
    text = "library reads small writes " * 20
    found = list(units(TOKENIZERS[kind], text, 12))
    assert all(unit.tokens <= 12 for unit in found)
    words = [text[unit.begin : unit.end].split() for unit in found]
    assert [word for some in words for word in some] == text.split()


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_counted_as_in_the_whole_text(kind: str) -> None:
    text = "The small library reads. It writes files, too.\n\nQuick! " * 50
    exact = len(TOKENIZERS[kind].encode(text))
    assert exact * 0.96 <= count_tokens(TOKENIZERS[kind], text) <= exact * 1.04
    assert 20 < count_tokens(TOKENIZERS[kind], text * 1000, stop_above=20) < 100_000
