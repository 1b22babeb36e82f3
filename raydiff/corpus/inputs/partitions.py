"""Hive partitions: columns whose values are in directory names, as in `year=2024/a.parquet`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds

from raydiff.errors import InputError

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_INT32 = 2**31


def partition_types(names: Iterable[str]) -> dict[str, pa.DataType]:
    """The keys in the directory names of files, with types: int32 where every value is such a
    number, int64 likewise, else string."""
    directories = {name.rpartition("/")[0] for name in names}
    values: dict[str, set[str]] = {}
    for part in {part for directory in directories for part in directory.split("/")}:
        key, separator, value = part.partition("=")
        if separator:
            values.setdefault(unquote(key), set()).add(unquote(value))
    return {key: _type_of(found - {_NULL}) for key, found in values.items()}


def _type_of(values: set[str]) -> pa.DataType:
    if not values or not all(_INTEGER.fullmatch(value) for value in values):
        return pa.string()
    small = all(-_INT32 <= int(value) < _INT32 for value in values)
    return pa.int32() if small else pa.int64()


def partition_values(name: str, schema: pa.Schema, path: str) -> dict[str, Any]:
    """The values of the keys of `schema` in a file's name; null where it has none.

    Raises:
        InputError: a value is not of the type that the key has in the other files.
    """
    if not schema.names:
        return {}
    directory = name.rpartition("/")[0]
    try:
        found = ds.get_partition_keys(ds.HivePartitioning(schema).parse(f"{directory}/"))
    except pa.ArrowException as error:
        types = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise InputError(
            f"input: {path} has directory names that do not fit the partitions of the other "
            f"files ({types}): {error}.",
            "input",
        ) from error
    return {key: found.get(key) for key in schema.names}
