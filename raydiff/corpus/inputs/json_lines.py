"""Values of JSON lines: parsing, and columns by name or dotted path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


class Malformed(ValueError):
    """A record that is none; the message says why."""


_ABSENT = object()


def parse_line(line: bytes) -> dict[str, Any]:
    """The object of a line.

    Raises:
        Malformed: it is no JSON, or no object.
    """
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        message = f"It is not UTF-8: {error.reason} at its byte {error.start}."
        raise Malformed(message) from error
    except (ValueError, RecursionError) as error:
        raise Malformed(f"It is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise Malformed(f"It is {_named(value)}; expected an object.")
    return value


def _named(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def lookup(record: Mapping[str, Any], name: str) -> Any:
    """The value of a column; `None` where the record has no such key."""
    value = _find(record, name)
    return None if value is _ABSENT else value


def has_column(record: Mapping[str, Any], name: str) -> bool:
    """Whether the record has the column, be it null."""
    return _find(record, name) is not _ABSENT


def _find(record: Any, name: str) -> Any:
    if not isinstance(record, dict):
        return _ABSENT
    if name in record:
        return record[name]
    head, separator, rest = name.partition(".")
    while separator:
        if head in record:
            return _find(record[head], rest)
        following, separator, rest = rest.partition(".")
        head = f"{head}.{following}"
    return _ABSENT


def keys_of(record: Mapping[str, Any]) -> Iterator[str]:
    """What the record's columns can be called, nested ones by their dotted paths."""
    for key, value in record.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{name}" for name in keys_of(value))
