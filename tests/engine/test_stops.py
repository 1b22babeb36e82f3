"""Stop strings in a text that comes in pieces."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.engine.stops import StopSearch

stop_sets = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=5)


def cut_of(text: str, stops: list[str]) -> int | None:
    """By looking at each beginning of the text in turn."""
    for end in range(1, len(text) + 1):
        complete = [s for s in stops if text[:end].endswith(s)]
        if complete:
            return end - max(map(len, complete))
    return None


def pending_of(text: str, stops: list[str]) -> int:
    """The longest end of the text that begins a stop string."""
    lengths = range(len(text), 0, -1)
    return next((n for n in lengths if any(s.startswith(text[-n:]) for s in stops)), 0)


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(st.text("abc", max_size=6), max_size=8),
    stops=stop_sets,
)
def test_the_string_that_is_complete_first_cuts_however_the_text_comes(
    pieces: list[str], stops: list[str]
) -> None:
    search, text = StopSearch(stops), ""
    for piece in pieces:
        text += piece
        found = search.find(piece, True)
        assert found == cut_of(text, stops)
        if found is not None:
            return
        assert search.pending == pending_of(text, stops)


def test_a_string_that_does_not_count_is_text_but_may_begin_one_that_does() -> None:
    search = StopSearch(["aba"])
    assert search.find("aba", False) is None
    assert search.find("ba", True) == 2


def test_of_strings_complete_at_one_character_the_longest_cuts() -> None:
    assert StopSearch(["c", "bc", "abcd"]).find("xabc", True) == 2
