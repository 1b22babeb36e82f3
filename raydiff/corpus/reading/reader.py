"""Reads the rows of spans in any format: documents, and the columns carried to the output."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from raydiff.corpus.inputs import InputLayout
from raydiff.corpus.inputs.partitions import partition_values
from raydiff.corpus.inputs.types import conform
from raydiff.corpus.plan import Span
from raydiff.corpus.reading.parquet import ParquetRows, Unreadable
from raydiff.corpus.reading.text_rows import TextRows, columns_of
from raydiff.corpus.reading.texts import Rejected, decode_texts
from raydiff.errors import InputError
from raydiff.storage import Folder


@dataclass(frozen=True)
class SpanRows:
    """The rows of a span."""

    texts: list[str | Rejected]
    """Each row's document, or why there is none."""
    carried: pa.Table
    """The columns carried to the output; null where a row cannot be read."""


class SpanReader:
    """Reads spans, going on where the last one ended when it can.

    Rows inside a row group, or inside a compressed file, cannot be reached without decoding those
    before them. A worker gets spans in file order, so keeping the place decodes a file once
    instead of once per shard. Safe to call from several threads.
    """

    def __init__(self, folder: Folder, layout: InputLayout) -> None:
        self._folder = folder
        self._layout = layout
        self._open: ParquetRows | TextRows | None = None
        self._lock = threading.Lock()

    def read(self, span: Span) -> SpanRows:
        """The span's rows. Rows that cannot be read are rejected, each with the reason.

        Raises:
            InputError: the file is gone or has other rows than planned.
            StorageError: the store refused or is out of reach.
        """
        with self._lock:
            try:
                rows = self._read(span)
            except (pa.ArrowException, OSError) as error:
                self._close()
                path = self._folder.path(span.file)
                message = f"input: {path} cannot be read any more: {error}."
                raise InputError(message, "input") from error
            except BaseException:
                self._close()
                raise
            # Otherwise fragments add up over hours; it takes a microsecond.
            pa.default_memory_pool().release_unused()
            return rows

    def placeholder(self, span: Span) -> pa.Table:
        """The carried columns of a span that is not read: its rows are known by their places."""
        return self._nulls(span.rows, self._partitions(span))

    def _read(self, span: Span) -> SpanRows:
        if self._layout.format == "parquet":
            return self._read_parquet(span)
        return self._read_text(span)

    def _read_parquet(self, span: Span) -> SpanRows:
        rows = self._open
        if not isinstance(rows, ParquetRows) or not rows.can_go_on(span):
            self._close()
            names = list(dict.fromkeys((self._layout.columns.text, *self._layout.in_files)))
            rows = self._open = ParquetRows(self._folder, span.file, names)
        partitions = self._partitions(span)
        texts: list[str | Rejected] = []
        tables: list[pa.Table] = []
        for found in rows.read(span):
            if isinstance(found, Unreadable):
                rejected = Rejected(error_type="CorruptRows", message=found.message)
                texts += [rejected] * found.rows
                tables.append(self._nulls(found.rows, partitions))
            else:
                texts += decode_texts(found.column(self._layout.columns.text))
                tables.append(self._carried(found, partitions))
        return SpanRows(texts, pa.concat_tables(tables))

    def _read_text(self, span: Span) -> SpanRows:
        rows = self._open
        if not isinstance(rows, TextRows) or not rows.can_go_on(span):
            self._close()
            rows = self._open = TextRows(self._folder, self._layout, span)
        parsed = [rows.parse(record) for record in rows.read(span)]
        columns = columns_of([values for _, values in parsed], self._layout)
        table = pa.table(columns) if columns else _without_columns(span.rows)
        return SpanRows([text for text, _ in parsed], self._carried(table, self._partitions(span)))

    def _carried(self, table: pa.Table, partitions: dict[str, Any]) -> pa.Table:
        columns = [
            (
                pa.chunked_array([pa.repeat(partitions[field.name], table.num_rows)], field.type)
                if field.name in partitions
                else conform(table.column(field.name), field.type)
            )
            for field in self._layout.carried
        ]
        if not columns:
            return _without_columns(table.num_rows)
        return pa.Table.from_arrays(columns, schema=self._layout.carried)

    def _nulls(self, rows: int, partitions: dict[str, Any]) -> pa.Table:
        nulls = {name: pa.nulls(rows) for name in self._layout.in_files}
        table = pa.table(nulls) if nulls else _without_columns(rows)
        return self._carried(table, partitions)

    def _partitions(self, span: Span) -> dict[str, Any]:
        """Values of the carried columns in the file's directory names, as scalars."""
        schema = self._layout.partitions
        values = partition_values(span.file, schema, self._folder.path(span.file))
        return {name: pa.scalar(value, schema.field(name).type) for name, value in values.items()}

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _without_columns(rows: int) -> pa.Table:
    return pa.table({"row": pa.nulls(rows)}).select([])
