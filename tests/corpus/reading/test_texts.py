"""Documents are decoded one by one; bad rows stay alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from raydiff.corpus.reading import Rejected, decode_texts

from .conftest import said


def texts(values: Any, kind: Any = None) -> list[str]:
    return [said(text) for text in decode_texts(pa.chunked_array([pa.array(values, kind)]))]


def test_null_empty_and_undecodable_rows_are_rejected_alone() -> None:
    values = [b"good", None, b"", b" \n\t", b"bad \xff byte", "ünï".encode()]
    assert texts(values, pa.binary()) == [
        "good",
        "<NullDocument>",
        "<EmptyDocument>",
        "<EmptyDocument>",
        "<InvalidUtf8>",
        "ünï",
    ]


def test_a_string_column_with_invalid_bytes_is_read_too() -> None:
    bytes_column = pa.array([b"ok", b"\xc3\x28"], pa.binary())
    unchecked = pa.Array.from_buffers(pa.string(), 2, bytes_column.buffers())
    good, bad = decode_texts(pa.chunked_array([unchecked]))
    assert good == "ok"
    assert isinstance(bad, Rejected)
    assert "byte 0" in bad.message


def test_a_column_of_nulls_rejects_every_row() -> None:
    assert texts([None, None]) == ["<NullDocument>"] * 2


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.large_string())])
def test_a_list_of_strings_is_one_document_of_paragraphs(kind: Any) -> None:
    values = [["one", None, "two"], ["three"], [], None, [None]]
    assert texts(values, kind) == [
        "one\n\ntwo",
        "three",
        "<EmptyDocument>",
        "<NullDocument>",
        "<EmptyDocument>",
    ]
