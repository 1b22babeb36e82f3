"""Column types: which can hold documents, and which differ in encoding only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

_TEXT_CHECKS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
)


def is_list(kind: Any) -> bool:
    """Whether rows of this type are lists of values."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def is_text(kind: Any) -> bool:
    """Whether a column of this type can hold documents: strings, bytes, or lists of them. A
    column of nulls can."""
    if is_list(kind):
        return _is_string(kind.value_type)
    return _is_string(kind)


def _is_string(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_string(kind.value_type)
    return any(check(kind) for check in _TEXT_CHECKS)


def output_type(kind: Any) -> Any:
    """The type with nested fields nullable and without metadata, so that files agree, and a row
    that cannot be read can be null."""
    return _rebuilt(kind, output_type)


def plain_type(kind: Any) -> Any:
    """The type without what only says how values are encoded: dictionaries, views, large
    offsets. Types that agree in it hold the same values."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_large_list(kind):
        return pa.list_(_field("item", plain_type(kind.value_type)))
    return _rebuilt(kind, plain_type)


def agree(wanted: Any, got: Any) -> bool:
    """Whether values of `got` can be had as `wanted`, the same."""
    if output_type(got) == wanted or pa.types.is_null(got):
        return True
    if plain_type(wanted) != plain_type(got):
        return False
    try:
        pa.nulls(0, got).cast(wanted)
    except pa.ArrowException:
        return False
    return True


def conform(column: pa.ChunkedArray[Any], wanted: Any) -> pa.ChunkedArray[Any]:
    """The same values as `wanted`, whose type agrees."""
    return column if column.type == wanted else column.cast(wanted)


def _rebuilt(kind: Any, change: Callable[[Any], Any]) -> Any:
    if pa.types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return pa.struct([_field(f.name, change(f.type)) for f in fields])
    if pa.types.is_map(kind):
        item = _field("value", change(kind.item_type))
        return pa.map_(change(kind.key_type), item, kind.keys_sorted)
    if is_list(kind):
        item = _field(kind.value_field.name, change(kind.value_type))
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)
    return kind


def _field(name: str, kind: Any) -> pa.Field[Any]:
    return pa.field(name, kind)
