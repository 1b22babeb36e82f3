"""From a record of a text file to a document and its carried values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from raydiff.corpus.inputs.json_lines import Malformed, lookup, parse_line
from raydiff.corpus.inputs.json_types import Unfitting, fit_to
from raydiff.corpus.inputs.record import Record
from raydiff.corpus.reading.texts import (
    NULL,
    PARAGRAPH_BREAK,
    Rejected,
    checked,
    invalid_utf8,
)

Row = tuple[str | Rejected, list[Any]]
"""A document, and the carried values that its file has; null where they cannot be told."""

Parser = Callable[[Record], Row]


def _malformed(record: Record, why: str) -> Rejected:
    return Rejected(error_type="MalformedRecord", message=f"Line {record.line}: {why}")


def json_parser(text: str, carried: Sequence[tuple[str, pa.DataType]]) -> Parser:
    """Parses lines of JSON."""
    fits = [(name, kind, fit_to(kind)) for name, kind in carried]

    def parse(record: Record) -> Row:
        if record.problem:
            return _malformed(record, record.problem), [None] * len(fits)
        try:
            value = parse_line(record.content)
        except Malformed as error:
            return _malformed(record, str(error)), [None] * len(fits)
        document = _document(lookup(value, text), record)
        values: list[Any] = []
        for name, kind, fit in fits:
            try:
                values.append(fit(lookup(value, name)))
            except Unfitting:
                values.append(None)
                document = _unfitting(record, name, kind)
        return document, values

    return parse


def _unfitting(record: Record, name: str, kind: pa.DataType) -> Rejected:
    why = f"its value of {name!r} is not of the type that the column has elsewhere, {kind}."
    return Rejected(error_type="ColumnTypeMismatch", message=f"Line {record.line}: {why}")


def _document(value: Any, record: Record) -> str | Rejected:
    if value is None:
        return NULL
    if isinstance(value, list) and all(isinstance(item, str | None) for item in value):
        value = PARAGRAPH_BREAK.join(item for item in value if item is not None)
    if not isinstance(value, str):
        kind = type(value).__name__
        why = f"the text is no string and no list of strings, but {kind}."
        return Rejected(error_type="NotText", message=f"Line {record.line}: {why}")
    return _checked_unicode(value)


def _checked_unicode(text: str) -> str | Rejected:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return invalid_utf8(f"half of a surrogate pair at character {error.start}")
    return checked(text)


def delimited_parser(header: Sequence[str], text: str, carried: Sequence[str]) -> Parser:
    """Parses rows of CSV under a header that has the columns."""
    text_at = header.index(text) if text in header else -1
    places = [header.index(name) if name in header else -1 for name in carried]

    def parse(record: Record) -> Row:
        fields: list[str] = record.content
        why = record.problem
        if why is None and len(fields) != len(header):
            why = f"it has {len(fields)} fields; the header has {len(header)}."
        if why is not None:
            return _malformed(record, why), [None] * len(places)
        values: list[Any] = [fields[place] for place in places]
        document = _decoded(fields[text_at])
        for index, value in enumerate(values):
            if _is_undecodable(value):
                why = f"its value of {carried[index]!r} is not UTF-8."
                document, values[index] = _malformed(record, why), None
        return document, values

    return parse


def _is_undecodable(value: str) -> bool:
    return not value.isascii() and any("\udc80" <= char <= "\udcff" for char in value)


def _decoded(text: str) -> str | Rejected:
    if _is_undecodable(text):
        place = next(i for i, char in enumerate(text) if "\udc80" <= char <= "\udcff")
        return invalid_utf8(f"at character {place}")
    return checked(text)
