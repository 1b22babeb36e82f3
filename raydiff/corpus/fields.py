"""Columns of documents that a prompt template names."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def template_values(rows: pa.Table, names: Sequence[str]) -> list[dict[str, str]] | None:
    """What a template's fields stand for in each row, as text; nulls are empty. `None` if the
    template has no fields."""
    if not names:
        return None
    columns = [[_text(value) for value in rows.column(name).to_pylist()] for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)
