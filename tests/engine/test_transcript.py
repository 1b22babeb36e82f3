"""Committed tokens as text."""

from __future__ import annotations

import pytest

from raydiff.engine.transcript import Transcript
from raydiff.text import Tokenizer
from tests.engine.conftest import MakeEngine


@pytest.fixture
def tokenizer(make_engine: MakeEngine) -> Tokenizer:
    return make_engine().tokenizer


def feed(transcript: Transcript, tokenizer: Tokenizer, text: str) -> bool:
    return transcript.extend(tokenizer.encode(text))


def test_text_that_may_become_a_stop_string_is_held_back(tokenizer: Tokenizer) -> None:
    transcript = Transcript(tokenizer, ["END"])
    assert not feed(transcript, tokenizer, "some E")
    assert transcript.take() == "some "
    assert not feed(transcript, tokenizer, "some EN")
    assert transcript.take() == ""
    assert not feed(transcript, tokenizer, "some ENter")
    assert transcript.take() == "ENter"


def test_the_earliest_stop_string_cuts(tokenizer: Tokenizer) -> None:
    transcript = Transcript(tokenizer, ["cd", "bc"])
    assert feed(transcript, tokenizer, "abcd")
    assert transcript.text == transcript.take() == "a"
    assert len(transcript.token_ids) == 1
    assert feed(transcript, tokenizer, "abcdefgh")
    assert transcript.text == "a"


def test_closing_releases_what_was_held_back(tokenizer: Tokenizer) -> None:
    transcript = Transcript(tokenizer, ["END"])
    feed(transcript, tokenizer, "the EN")
    transcript.take()
    transcript.close()
    assert transcript.take() == "EN"


def test_a_restart_repeats_without_streaming_twice(tokenizer: Tokenizer) -> None:
    transcript = Transcript(tokenizer, [])
    feed(transcript, tokenizer, "hello")
    assert transcript.take() == "hello"
    transcript.restart()
    feed(transcript, tokenizer, "hell")
    assert transcript.take() == ""
    feed(transcript, tokenizer, "hello you")
    assert transcript.take() == " you"


class HalfCharacters:
    """Stands in for a byte-level tokenizer: three tokens of one byte each for a euro sign."""

    def decode(self, ids: tuple[int, ...]) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


def test_an_unfinished_character_is_held_back() -> None:
    transcript = Transcript(HalfCharacters(), [])  # type: ignore[arg-type]
    euro = list("€".encode())
    transcript.extend([97, *euro[:2]])
    assert transcript.take() == "a"
    transcript.extend([97, *euro])
    assert transcript.take() == "€"
