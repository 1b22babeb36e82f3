"""Columns in prompts."""

from __future__ import annotations

import pyarrow as pa

from raydiff.corpus.fields import template_values


def test_columns_become_text_and_nulls_nothing() -> None:
    rows = pa.table({"title": ["a", None], "year": [1999, 2000], "raw": [b"x\xff", b""]})
    assert template_values(rows, ["year", "title", "raw"]) == [
        {"year": "1999", "title": "a", "raw": "x\ufffd"},
        {"year": "2000", "title": "", "raw": ""},
    ]


def test_a_template_without_fields_needs_no_columns() -> None:
    assert template_values(pa.table({"a": [1]}), ()) is None
