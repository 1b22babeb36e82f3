"""Nested columns are named by dotted paths."""

from __future__ import annotations

import pyarrow as pa
import pytest

from raydiff.corpus.inputs.paths import column_names, find_path, take_path

BODY = pa.struct([("text", pa.string()), ("meta", pa.struct([("lang", pa.string())]))])
SCHEMA = pa.schema(
    [
        pa.field("body", BODY),
        pa.field("a.b", pa.int64()),
        pa.field("a", pa.struct([("b", pa.string())])),
        pa.field("twice", pa.int64()),
        pa.field("twice", pa.int64()),
    ]
)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("body", ["body"]),
        ("body.text", ["body", "text"]),
        ("body.meta.lang", ["body", "meta", "lang"]),
        ("a.b", ["a.b"]),
        ("body.none", None),
        ("text", None),
        ("twice", None),
    ],
)
def test_a_name_leads_to_one_column(name: str, path: list[str] | None) -> None:
    found = find_path(SCHEMA, name)
    assert (found and found[0]) == path


def test_all_names_are_listed() -> None:
    assert list(column_names(SCHEMA))[:4] == ["body", "body.text", "body.meta", "body.meta.lang"]


def test_a_value_below_null_is_null() -> None:
    table = pa.table({"body": pa.array([{"text": "x"}, None, {"text": None}], BODY)})
    assert take_path(table, ["body", "text"]).to_pylist() == ["x", None, None]
