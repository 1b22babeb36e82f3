"""Prompt templates: one text, braces escaped, everything else refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydiff.errors import UsageError
from raydiff.text.filling import Template, escaped, require_fields


@given(before=st.text(), text=st.text(), after=st.text())
def test_whatever_is_escaped_comes_out_as_it_was(before: str, text: str, after: str) -> None:
    template = Template(escaped(before) + "{text}" + escaped(after))
    assert template.fill(text) == before + text + after


@pytest.mark.parametrize(
    ("source", "got"),
    [
        ("no text", "0 of them"),
        ("", "0 of them"),
        ("{text} {text}", "2 of them"),
        ("{{text}}", "0 of them"),
        ("{text", "expected"),
        ("{text} }", "Single"),
        ("{text!r}", "{text}"),
        ("{text:>9}", "{text}"),
        ("{text} {}", "{}"),
        ("{text} {0}", "{0}"),
        ("{text} {a.b}", "{a.b}"),
    ],
)
def test_a_template_without_exactly_one_text_is_refused(source: str, got: str) -> None:
    with pytest.raises(UsageError, match="template: expected") as caught:
        Template(source)
    assert got in str(caught.value)
    assert caught.value.param == "template"


def test_other_fields_are_columns_that_must_be_known() -> None:
    template = Template("{title} by {author}: {text} ({title})")
    assert template.fields == ("title", "author")
    require_fields(template, ("author", "title", "year"))
    with pytest.raises(UsageError, match=r"expected \{text\} or \{title\}, got"):
        require_fields(template, ("title",))


@given(title=st.text(), text=st.text())
def test_values_are_text_whatever_they_hold(title: str, text: str) -> None:
    bound = Template("{title}: {text}").bind({"title": title})
    assert bound.fill(text) == f"{title}: {text}"
