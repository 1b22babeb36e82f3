"""Documents of a column: decoded one by one, so that a bad row does not spoil its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from raydiff.corpus.inputs.types import is_list

PARAGRAPH_BREAK = "\n\n"
"""Between the strings of a document that is a list of them."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A document that is not sent to the model, and why."""

    error_type: str
    message: str
    attempts: int = 0
    """How often it was tried before it was rejected."""


NULL = Rejected(error_type="NullDocument", message="The text is null.")
EMPTY = Rejected(error_type="EmptyDocument", message="The text is empty or only white space.")


def decode_texts(column: pa.ChunkedArray[Any]) -> list[str | Rejected]:
    """Each row's text, or why it is none.

    Bytes are decoded one row at a time: Parquet does not check strings. The strings of a list are
    joined by blank lines, without its nulls.
    """
    kind: Any = column.type
    if pa.types.is_null(kind):
        return [NULL] * len(column)
    if is_list(kind):
        lists: Any = column.cast(pa.large_list(pa.large_binary()))
        return [_joined(values) for values in lists.to_pylist()]
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    return [_decode(value) for value in column.cast(pa.large_binary()).to_pylist()]


def _joined(values: list[bytes | None] | None) -> str | Rejected:
    if values is None:
        return NULL
    return _decode(PARAGRAPH_BREAK.encode().join(v for v in values if v is not None))


def _decode(value: bytes | None) -> str | Rejected:
    if value is None:
        return NULL
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError as error:
        return invalid_utf8(f"{error.reason} at byte {error.start}")
    return checked(text)


def invalid_utf8(reason: str) -> Rejected:
    """What becomes of a text that is not Unicode."""
    return Rejected(error_type="InvalidUtf8", message=f"The bytes are not UTF-8: {reason}.")


def checked(text: str) -> str | Rejected:
    """The text, unless there is nothing in it."""
    return text if text.strip() else EMPTY
