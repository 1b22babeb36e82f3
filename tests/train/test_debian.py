"""Debian descriptions become (document, summary) pairs, split so that near-twins stay together."""

from pathlib import Path

import pytest

from raydiff.train.debian import Pair, beginning, parse_translation, read_pairs, split_of, unwrap

STANZA = """\
Package: alpha
Description-md5: 00
Description-en: tool for things
 Alpha is a tool
 for things.
 .
 Features:
  * one
  * two
"""


def test_a_stanza_gives_its_name_unwrapped_text_and_synopsis() -> None:
    [pair] = parse_translation(STANZA)
    text = "Alpha is a tool for things.\nFeatures:\n* one\n* two"
    assert pair == Pair("alpha", text, "tool for things")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "Package: a\nDescription-en: only a synopsis",
        "Package: a\nDescription-en:\n A body without synopsis.",
        "Description-en: no name\n A body.",
        "Package: a\nDescription-de: kurz\n Ein anderer Text.",
        "Package: a\nDescription-en: only dots\n .\n .",
    ],
)
def test_a_stanza_without_name_synopsis_or_body_is_skipped(content: str) -> None:
    assert list(parse_translation(content)) == []


def test_a_blank_line_mark_separates_paragraphs_and_lists_stay_lines() -> None:
    lines = [" a", " b", " .", " .", " c", "   item", " d"]
    assert unwrap(lines) == "a b\nc\nitem\nd"


def test_exact_twins_and_repeated_names_are_dropped(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    twin = STANZA.replace("Package: alpha", "Package: beta")
    first.write_text(f"{STANZA}\n{twin}")
    second.write_text(STANZA.replace("one", "changed"))
    assert [pair.doc_id for pair in read_pairs([first, second])] == ["alpha"]
    assert "* one" in read_pairs([first, second])[0].text


def test_equal_beginnings_share_a_split_whatever_their_case_punctuation_and_end() -> None:
    start = "Alpha is a cross-platform framework for things, many of them big"
    twins = [start + " (headers)", start.upper() + "!", start.replace("-", " ") + " and docs"]
    assert len({beginning(twin) for twin in twins}) == 1
    assert len({split_of(twin) for twin in twins}) == 1


def test_splits_have_their_shares() -> None:
    splits = [split_of(f"document number {index}") for index in range(20_000)]
    assert splits.count("test") / len(splits) == pytest.approx(0.035, abs=0.005)
    assert splits.count("validation") / len(splits) == pytest.approx(0.015, abs=0.004)
