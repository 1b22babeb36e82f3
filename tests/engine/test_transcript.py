"""Committed tokens as text."""

from __future__ import annotations

from codecs import getincrementaldecoder
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.engine.transcript import Transcript
from raydiff.text import Tokenizer
from tests.engine.conftest import MakeEngine
from tests.engine.test_stops import cut_of


@pytest.fixture
def tokenizer(make_engine: MakeEngine) -> Tokenizer:
    return make_engine().tokenizer


def feed(transcript: Transcript, tokenizer: Tokenizer, text: str) -> bool:
    return transcript.extend(tokenizer.encode(text))


def test_text_that_may_become_a_stop_string_is_held_back(tokenizer: Tokenizer) -> None:
    transcript = Transcript(tokenizer, ["END"])
    assert not feed(transcript, tokenizer, "some E")
    assert transcript.take() == "some "
    assert not feed(transcript, tokenizer, "N")
    assert transcript.take() == ""
    assert not feed(transcript, tokenizer, "ter")
    assert transcript.take() == "ENter"


def test_the_stop_string_that_is_complete_first_cuts(tokenizer: Tokenizer) -> None:
    transcript = Transcript(tokenizer, ["cd", "bc"])
    assert feed(transcript, tokenizer, "abcd")
    assert transcript.text == transcript.take() == "a"
    assert len(transcript.token_ids) == 1
    assert feed(transcript, tokenizer, "efgh")
    assert transcript.text == "a"


def test_closing_releases_what_was_held_back(tokenizer: Tokenizer) -> None:
    transcript = Transcript(tokenizer, ["END"])
    feed(transcript, tokenizer, "the EN")
    transcript.take()
    assert not transcript.close()
    assert transcript.take() == "EN"


def test_a_restart_repeats_without_streaming_twice(tokenizer: Tokenizer) -> None:
    transcript = Transcript(tokenizer, [])
    feed(transcript, tokenizer, "hello")
    assert (transcript.take(), transcript.sent_tokens()) == ("hello", 5)
    transcript.restart()
    feed(transcript, tokenizer, "hell")
    assert (transcript.take(), transcript.sent_tokens()) == ("", 5)
    feed(transcript, tokenizer, "o you")
    assert transcript.take() == " you"


def test_a_stop_string_within_the_least_tokens_is_text(tokenizer: Tokenizer) -> None:
    """It ends a text where its last character comes from a later token."""
    transcript = Transcript(tokenizer, ["END"], min_tokens=5)
    assert not feed(transcript, tokenizer, "aEND")
    assert not feed(transcript, tokenizer, "E")
    assert feed(transcript, tokenizer, "ND")
    assert transcript.text == "aEND"


class OneByte:
    """Stands in for a byte-level tokenizer whose every token is a byte."""

    def decode(self, ids: tuple[int, ...]) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


def byte_transcript(stop: list[str], min_tokens: int = 0) -> Transcript:
    return Transcript(OneByte(), stop, min_tokens)  # type: ignore[arg-type]


def test_an_unfinished_character_is_held_back() -> None:
    transcript = byte_transcript([])
    euro = list("€".encode())
    transcript.extend([97, *euro[:2]])
    assert transcript.take() == "a"
    assert transcript.sent_tokens() == 1
    transcript.extend(euro[2:])
    assert transcript.take() == "€"
    assert transcript.sent_tokens() == 4


def test_a_stop_string_may_end_in_a_character_of_many_tokens() -> None:
    transcript = byte_transcript(["b€"])
    euro = list("€".encode())
    assert not transcript.extend([97, 98, *euro[:2]])
    assert transcript.take() == "a"
    assert transcript.extend(euro[2:])
    assert (transcript.take(), transcript.token_ids) == ("", (97,))


def test_bytes_that_never_become_a_character_are_text_at_the_end() -> None:
    transcript = byte_transcript(["\ufffd"])
    assert not transcript.extend([97, 0xE2])
    assert transcript.close()
    assert (transcript.text, transcript.token_ids) == ("a", (97,))
    transcript = byte_transcript([])
    transcript.extend([97, 0xE2])
    assert not transcript.close()
    assert transcript.take() == "a\ufffd"


TOKENS = [*b"aab", *"€".encode(), *"\U0001f642".encode()]


@settings(max_examples=400, deadline=None)
@given(
    ids=st.lists(st.sampled_from(TOKENS), max_size=24),
    cuts=st.sets(st.integers(0, 24), max_size=8),
    stops=st.lists(st.text("ab€\U0001f642", min_size=1, max_size=4), max_size=4),
    min_tokens=st.integers(0, 8),
)
def test_a_stream_is_the_text_up_to_the_first_stop_string(
    ids: list[int], cuts: set[int], stops: list[str], min_tokens: int
) -> None:
    """Whatever the tokens, the commits they come in and the stop strings: what was streamed is the
    final text, which is that of all tokens cut before the stop string complete first; and nothing
    of that stop string was ever streamed."""
    transcript = byte_transcript(stops, min_tokens)
    edges = [0, *sorted(cut for cut in cuts if cut < len(ids)), len(ids)]
    streamed, ended = "", False
    for begin, end in pairwise(edges):
        ended = transcript.extend(ids[begin:end])
        streamed += transcript.take()
        if ended:
            break
    if not ended:
        ended = transcript.close()
        streamed += transcript.take()
    whole = bytes(ids).decode("utf-8", errors="replace")
    early = len(getincrementaldecoder("utf-8")("replace").decode(bytes(ids[:min_tokens])))
    cut = later_cut(whole, stops, early)
    assert ended == (cut is not None)
    assert streamed == transcript.text == whole[:cut]
    if cut is None:
        assert transcript.token_ids == tuple(ids)
    else:
        assert bytes(transcript.token_ids).decode("utf-8", errors="replace") == whole[:cut]


def later_cut(text: str, stops: list[str], early: int) -> int | None:
    """Where the text is cut before a stop string that ends after `early` characters."""
    if not early:
        return cut_of(text, stops)
    for end in range(early + 1, len(text) + 1):
        complete = [s for s in stops if text[:end].endswith(s)]
        if complete:
            return end - max(map(len, complete))
    return None
