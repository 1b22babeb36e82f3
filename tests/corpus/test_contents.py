"""Documents with the same content."""

from __future__ import annotations

from raydiff.corpus.answers import Summary
from raydiff.corpus.commit import Totals
from raydiff.corpus.contents import Contents, content_key

SUMMARY = Summary(
    text='Ein "Wort", ☃\n', finish_reason="length", totals=Totals(prompt_tokens=3), chunks=2
)


def contents(*keys: bytes) -> Contents:
    made = Contents()
    for index, key in enumerate(keys):
        made.add(index, key)
    return made


def test_a_content_is_the_text_and_the_columns_that_the_prompt_names() -> None:
    key = content_key("a b")
    assert len(key) == 16
    assert content_key("a b") == key
    assert content_key("a  b") != key
    assert content_key("a b", {"title": "t"}) != key
    assert content_key("a b", {"title": "t"}) != content_key("a b", {"title": "u"})


def test_a_summary_survives_as_bytes() -> None:
    assert Summary.from_bytes(SUMMARY.to_bytes()) == SUMMARY


def test_the_first_of_equal_documents_is_begun_and_all_get_its_summary() -> None:
    made = contents(b"x", b"y", b"x", b"x")
    assert made.begin() == [0, 1]
    assert made.begin() == []
    assert made.succeed(b"x", SUMMARY) == [0, 2, 3]
    assert made.settlement() == ({b"x": SUMMARY.to_bytes()}, [])
    assert made.settlement() == ({}, [])


def test_when_one_fails_the_next_is_tried_and_only_the_last_gives_the_content_up() -> None:
    made = contents(b"x", b"x")
    made.begin()
    made.fail(0)
    assert made.settlement() == ({}, [])
    assert made.begin() == [1]
    made.fail(1)
    assert made.settlement() == ({}, [b"x"])
    assert made.begin() == []


def test_what_is_bad_for_one_is_bad_for_all() -> None:
    made = contents(b"x", b"y", b"x")
    made.begin()
    assert made.fail_all(0) == [0, 2]
    assert made.settlement() == ({}, [b"x"])


def test_what_another_generates_is_waited_for_and_then_taken_or_begun() -> None:
    made = contents(b"x", b"y", b"x")
    assert made.claimable == [b"x", b"y"]
    assert made.answer(b"x", "taken") is None
    assert made.waiting
    assert made.begin() == [1]
    assert made.claimable == [b"x"]
    assert made.answer(b"x", SUMMARY.to_bytes()) == SUMMARY
    assert made.succeed(b"x", SUMMARY) == [0, 2]
    assert not made.waiting
    made.succeed(b"y", SUMMARY)
    assert list(made.settlement()[0]) == [b"y"]


def test_what_another_gave_up_is_begun_here() -> None:
    made = contents(b"x")
    made.answer(b"x", "taken")
    made.answer(b"x", "yours")
    assert not made.waiting
    assert made.begin() == [0]
