"""Columns by name, also nested ones by dotted path, as in `body.text`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def find_path(fields: Iterable[pa.Field[Any]], name: str) -> tuple[list[str], pa.DataType] | None:
    """The field names that lead to a column, and its type; `None` if there is no one such.

    A column whose own name has dots wins over a nested one.
    """
    level = list(fields)
    exact = [field for field in level if field.name == name]
    if exact:
        return ([name], exact[0].type) if len(exact) == 1 else None
    for field in level:
        if name.startswith(f"{field.name}.") and pa.types.is_struct(field.type):
            below = find_path(_children(field.type), name[len(field.name) + 1 :])
            if below is not None:
                return [field.name, *below[0]], below[1]
    return None


def column_names(fields: Iterable[pa.Field[Any]]) -> Iterator[str]:
    """What columns can be called, nested ones by their dotted paths."""
    for field in fields:
        yield field.name
        if pa.types.is_struct(field.type):
            yield from (f"{field.name}.{name}" for name in column_names(_children(field.type)))


def _children(kind: pa.DataType) -> list[pa.Field[Any]]:
    return [kind.field(i) for i in range(kind.num_fields)]


def take_path(batch: pa.Table, path: list[str]) -> pa.ChunkedArray[Any]:
    """The column at a path; null where a struct above it is."""
    column = batch.column(path[0])
    return pc.struct_field(column, path[1:]) if len(path) > 1 else column
