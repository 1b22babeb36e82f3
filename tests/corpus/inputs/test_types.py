"""Types agree when their values are the same, however they are encoded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from raydiff.corpus.inputs.types import agree, conform, is_text, output_type

STRING = pa.string()
ENCODED = pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (STRING, True),
        (pa.large_string(), True),
        (pa.string_view(), True),
        (pa.binary(), True),
        (pa.binary(4), True),
        (ENCODED, True),
        (pa.null(), True),
        (pa.list_(STRING), True),
        (pa.large_list(ENCODED), True),
        (pa.list_(pa.int64()), False),
        (pa.list_(pa.list_(STRING)), False),
        (pa.struct([("text", STRING)]), False),
        (pa.int64(), False),
    ],
)
def test_documents_are_strings_bytes_or_lists_of_them(kind: Any, expected: bool) -> None:
    assert is_text(kind) == expected


NOT_NULL = pa.struct([pa.field("a", pa.int64(), nullable=False)])


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        (STRING, STRING, True),
        (STRING, ENCODED, True),
        (ENCODED, STRING, True),
        (pa.dictionary(pa.int8(), STRING), ENCODED, True),
        (STRING, pa.large_string(), True),
        (STRING, pa.null(), True),
        (pa.list_(STRING), pa.large_list(STRING), True),
        (NOT_NULL, pa.struct([("a", pa.int64())]), True),
        (pa.struct([("a", pa.int64())]), NOT_NULL, True),
        (pa.list_(pa.field("item", pa.int8(), nullable=False)), pa.list_(pa.int8()), True),
        (STRING, pa.int64(), False),
        (STRING, pa.binary(), False),
        (pa.int32(), pa.int64(), False),
        (pa.timestamp("us"), pa.timestamp("ns"), False),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.decimal128(5, 2), pa.decimal128(6, 2), False),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())]), False),
    ],
)
def test_types_agree_where_only_encoding_or_nullability_differs(
    first: Any, other: Any, expected: bool
) -> None:
    assert agree(output_type(first), other) == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", None, "b"], STRING),
        (["a", None, "b"], pa.large_string()),
        ([{"a": 1}, None], NOT_NULL),
        ([[{"a": 1}], []], pa.list_(NOT_NULL)),
        ([[("k", 1)], None], pa.map_(STRING, pa.int64())),
        ([b"1" * 16, None], pa.uuid()),
    ],
)
def test_conforming_keeps_values(values: list[Any], kind: Any) -> None:
    column = pa.chunked_array([pa.array(values, kind)])
    wanted = output_type(kind)
    assert conform(column, wanted).to_pylist() == column.to_pylist()
    assert conform(column, wanted).type == wanted


def test_a_dictionary_can_be_made_of_plain_strings_and_undone() -> None:
    plain = pa.chunked_array([["a", "b", "a", None]])
    assert conform(plain, ENCODED).type == ENCODED
    assert conform(conform(plain, ENCODED), STRING) == plain
