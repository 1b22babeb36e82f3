"""Types of JSON values: settled from a sample, then kept by stated rules.

A column has the type that all its sampled values have: boolean, int64, double (also where whole
numbers are among them), string, or a list of one of these. Anything else, as objects or mixed
kinds, is a string that holds the value's JSON text. Later values that do not fit a column's type
make their row an error, except that a string column holds the JSON text of what is no string.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from raydiff.corpus.inputs.types import is_list

_INT64 = 2**63
_EXACT = 2**53


class Unfitting(ValueError):
    """A value is not of its column's type."""


def json_type(values: Iterable[object]) -> pa.DataType:
    """The type of a column with these values among others; nulls tell nothing."""
    present = [value for value in values if value is not None]
    if not present or not all(isinstance(value, list) for value in present):
        return _scalar_type(present)
    items = [item for value in present if isinstance(value, list) for item in value]
    if not items or any(isinstance(item, dict | list) for item in items):
        return pa.string()
    settled = [item for item in items if item is not None]
    kinds = {_kind(item) for item in settled}
    item_type = _scalar_type(settled)
    if not kinds or (item_type == pa.string() and kinds != {"string"}):
        return pa.string()
    return pa.list_(item_type)


def _scalar_type(present: list[Any]) -> pa.DataType:
    kinds = {_kind(value) for value in present}
    if kinds == {"bool"}:
        return pa.bool_()
    if kinds == {"int"}:
        return pa.int64()
    if kinds and kinds <= {"int", "float"}:
        return pa.float64()
    return pa.string()


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -_INT64 <= value < _INT64 else "other"
    if isinstance(value, float):
        return "float"
    return "string" if isinstance(value, str) else "other"


def fit_to(kind: Any) -> Callable[[Any], Any]:
    """What makes a value one of a column's type, or raises `Unfitting`."""
    if is_list(kind):
        fit = fit_to(kind.value_type)
        return lambda value: _fit_list(value, fit)
    fits: list[tuple[pa.DataType, Callable[[Any], Any]]] = [
        (pa.bool_(), _fit_bool),
        (pa.int64(), _fit_int),
        (pa.float64(), _fit_float),
    ]
    return next((fit for wanted, fit in fits if wanted == kind), _fit_string)


def _fit_list(value: Any, fit: Callable[[Any], Any]) -> Any:
    if value is None:
        return None
    if not isinstance(value, list):
        raise Unfitting
    if any(fit is _fit_string and not isinstance(item, str | None) for item in value):
        raise Unfitting
    return [fit(item) for item in value]


def _fit_bool(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    raise Unfitting


def _fit_int(value: Any) -> Any:
    if value is None or _kind(value) == "int":
        return value
    raise Unfitting


def _fit_float(value: Any) -> Any:
    if value is None or isinstance(value, float):
        return value
    if _kind(value) == "int" and abs(value) <= _EXACT:
        return float(value)
    raise Unfitting


def _fit_string(value: Any) -> Any:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise Unfitting from error
    return text
