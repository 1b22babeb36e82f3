"""Columns of JSON have one type each, and no value is changed silently."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.inputs.json_types import Unfitting, fit_to, json_type


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -(2**63)], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([True, False], pa.bool_()),
        (["a", None], pa.string()),
        ([None], pa.string()),
        ([], pa.string()),
        ([1, "a"], pa.string()),
        ([1, True], pa.string()),
        ([2**63], pa.string()),
        ([{"a": 1}], pa.string()),
        ([[1, 2], None, []], pa.list_(pa.int64())),
        ([["a", None]], pa.list_(pa.string())),
        ([[]], pa.string()),
        ([[None]], pa.string()),
        ([[1, "a"]], pa.string()),
        ([[1], "a"], pa.string()),
        ([[{"a": 1}]], pa.string()),
        ([[[1]]], pa.string()),
    ],
)
def test_the_type_is_the_one_that_all_values_have(values: list[Any], kind: pa.DataType) -> None:
    assert json_type(values) == kind


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.lists(values, max_size=6))
def test_sampled_values_fit_their_type_unchanged(sample: list[Any]) -> None:
    kind = json_type(sample)
    fit = fit_to(kind)
    try:
        stored = pa.array([fit(value) for value in sample], kind).to_pylist()
    except Unfitting:
        # only what no column can hold exactly, or no file at all
        assert kind == pa.float64() or "\\ud" in json.dumps(sample)
        return
    for value, got in zip(sample, stored, strict=True):
        if kind == pa.string() and not isinstance(value, str | None):
            assert json.loads(got) == value
        else:
            assert got == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), "1"),
        (pa.int64(), 1.0),
        (pa.int64(), True),
        (pa.int64(), 2**63),
        (pa.float64(), 2**53 + 1),
        (pa.float64(), "1.5"),
        (pa.bool_(), 1),
        (pa.list_(pa.int64()), 1),
        (pa.list_(pa.int64()), ["a"]),
        (pa.list_(pa.string()), [1]),
        (pa.string(), "\ud800"),
    ],
)
def test_a_value_of_another_type_does_not_fit(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(Unfitting):
        fit_to(kind)(value)


def test_a_string_column_takes_other_values_as_their_json_text() -> None:
    fit = fit_to(pa.string())
    assert [fit(v) for v in ("a", 1, None, {"k": ["é"]}, True)] == [
        "a",
        "1",
        None,
        '{"k": ["é"]}',
        "true",
    ]
