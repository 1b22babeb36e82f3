"""Reads the rows of spans: column projection, row groups streamed, text decoded row by row."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.corpus.inputs import Columns
from raydiff.corpus.plan import Span
from raydiff.corpus.storage import Folder
from raydiff.errors import InputError

_MAX_BATCH_ROWS = 4096


class CorruptRows(Exception):
    """The file's pages cannot be decoded; trying again will not help."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A document that is not sent to the model, and why."""

    error_type: str
    message: str
    attempts: int = 0
    """How often it was tried before it was rejected."""


class SpanReader:
    """Reads spans, going on where the last one ended when it can.

    Rows inside a row group cannot be reached without decoding those before them. A worker gets
    spans in file order, so keeping the stream open decodes a large row group once instead of
    once per shard. Safe to call from several threads.
    """

    def __init__(self, folder: Folder, columns: Columns) -> None:
        self._folder = folder
        self._columns = list(dict.fromkeys((columns.text, *columns.carried)))
        self._stream: _Stream | None = None
        self._lock = threading.Lock()

    def read(self, span: Span) -> pa.Table:
        """The span's rows, with the text column and those carried to the output.

        Raises:
            CorruptRows: the rows cannot be decoded.
            InputError: the file is gone or has other rows than planned.
        """
        path = self._folder.path(span.file)
        with self._lock:
            try:
                stream = self._reach(span)
                table = stream.take(span.rows)
            except (pa.ArrowException, OSError) as error:
                self._stream = None
                # Arrow reports undecodable pages as OSError without an errno.
                if isinstance(error, OSError) and error.errno is not None:
                    message = f"input: {path} cannot be read any more: {error}."
                    raise InputError(message, "input") from error
                raise CorruptRows(f"{path}: {error}") from error
        if table.num_rows != span.rows:
            message = f"input: {path} has fewer rows than when the run was planned."
            raise InputError(message, "input")
        return table

    def schema(self, span: Span) -> pa.Schema:
        """The types of the columns that `read` returns, from the footer alone."""
        with self._folder.open(span.file) as stream:
            schema = pq.read_schema(stream)
        return pa.schema([schema.field(name) for name in self._columns])

    def _reach(self, span: Span) -> _Stream:
        stream = self._stream
        group_start = span.row_start - span.skip_rows
        if stream is None or not stream.can_reach(span, group_start):
            stream = self._stream = _Stream(self._folder, self._columns, span, group_start)
        stream.skip(span.row_start - stream.position)
        return stream


class _Stream:
    """The rows of one file from a row group on, taken in order."""

    def __init__(self, folder: Folder, columns: list[str], span: Span, group_start: int) -> None:
        self.file = span.file
        self.position = group_start
        parquet = pq.ParquetFile(folder.open(span.file))
        groups = list(range(span.first_group, parquet.metadata.num_row_groups))
        self._batches: Iterator[Any] = parquet.iter_batches(
            batch_size=min(span.rows, _MAX_BATCH_ROWS), row_groups=groups, columns=columns
        )
        self._schema = pa.schema([parquet.schema_arrow.field(name) for name in columns])
        self._rest: Any = None

    def can_reach(self, span: Span, group_start: int) -> bool:
        """Whether going on is no dearer than opening the file at the shard's row group."""
        return self.file == span.file and group_start <= self.position <= span.row_start

    def skip(self, rows: int) -> None:
        for _ in self._slices(rows):
            pass

    def take(self, rows: int) -> pa.Table:
        slices = [batch.select(self._schema.names) for batch in self._slices(rows)]
        return pa.Table.from_batches(slices, schema=self._schema)

    def _slices(self, rows: int) -> Iterator[Any]:
        while rows:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                return
            piece = batch.slice(0, rows)
            self._rest = batch.slice(rows) if batch.num_rows > rows else None
            rows -= piece.num_rows
            self.position += piece.num_rows
            yield piece


def decode_texts(column: pa.ChunkedArray[Any]) -> list[str | Rejected]:
    """Each row's text, or why it is none.

    Bytes are decoded one row at a time: Parquet does not check strings, and one bad row must
    not spoil its neighbours.
    """
    if pa.types.is_null(column.type):
        return [_NULL] * len(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return [_decode(value) for value in column.cast(pa.large_binary()).to_pylist()]


_NULL = Rejected(error_type="NullDocument", message="The text is null.")
_EMPTY = Rejected(error_type="EmptyDocument", message="The text is empty or only white space.")


def _decode(value: bytes | None) -> str | Rejected:
    if value is None:
        return _NULL
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"The bytes are not UTF-8: {error.reason} at byte {error.start}."
        return Rejected(error_type="InvalidUtf8", message=message)
    return text if text.strip() else _EMPTY
