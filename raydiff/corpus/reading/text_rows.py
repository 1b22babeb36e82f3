"""Rows of one JSON lines or CSV file, from a byte on, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from raydiff.corpus.inputs.formats import open_text
from raydiff.corpus.inputs.layout import InputLayout
from raydiff.corpus.inputs.record import Record
from raydiff.corpus.inputs.records import read_records
from raydiff.corpus.inputs.text_files import header_of, read_header, text_kind
from raydiff.corpus.plan import Span
from raydiff.corpus.reading.text_values import Parser, delimited_parser, json_parser
from raydiff.errors import InputError
from raydiff.storage import Folder

_SKIP_BYTES = 2**20


def open_rows(
    folder: Folder, file: str
) -> tuple[list[str] | None, Iterator[Record], pa.NativeFile]:
    """A file from its first row on: the header if it is CSV, the records, and the open stream."""
    kind, path = text_kind(file), folder.path(file)
    stream = open_text(folder, file, kind)
    records = read_records(stream, kind, path)
    if kind.format != "csv":
        return None, records, stream
    return header_of(next(records, None), path), records, stream


class TextRows:
    """The rows of a file, taken in order. Of a compressed file everything before is read too."""

    def __init__(self, folder: Folder, layout: InputLayout, span: Span) -> None:
        """Opens the file at the span."""
        self.file = span.file
        self._path = folder.path(span.file)
        self._kind = text_kind(span.file)
        self.parse: Parser = _parser(folder, layout, span.file)
        """Makes a row of a record."""
        self._row = span.row_start
        self._stream = open_text(folder, span.file, self._kind)
        self._pass_over(span.offset)
        self._records = read_records(
            self._stream, self._kind, self._path, offset=span.offset, line=span.line
        )

    def _pass_over(self, offset: int) -> None:
        if self._kind.codec is None:
            self._stream.seek(offset)
            return
        while offset:
            passed = len(self._stream.read(min(offset, _SKIP_BYTES)))
            if not passed:
                raise self._changed()
            offset -= passed

    def can_go_on(self, span: Span) -> bool:
        """Whether going on is no dearer than opening the file at the span."""
        ahead = self._row == span.row_start or (
            self._kind.codec is not None and self._row < span.row_start
        )
        return self.file == span.file and ahead

    def read(self, span: Span) -> Iterator[Record]:
        """The span's records.

        Raises:
            InputError: the file has other rows than planned.
        """
        while self._row < span.row_start:
            self._next()
        for _ in range(span.rows):
            yield self._next()

    def _next(self) -> Record:
        record = next(self._records, None)
        if record is None:
            raise self._changed()
        self._row += 1
        return record

    def _changed(self) -> InputError:
        message = f"input: {self._path} has fewer rows than when the run was planned."
        return InputError(message, "input")

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()


def _parser(folder: Folder, layout: InputLayout, file: str) -> Parser:
    types = [(name, layout.carried.field(name).type) for name in layout.in_files]
    text = layout.columns.text
    if text_kind(file).format == "csv":
        return delimited_parser(read_header(folder, file), text, [name for name, _ in types])
    return json_parser(text, types)


def columns_of(rows: list[list[Any]], layout: InputLayout) -> dict[str, pa.Array[Any]]:
    """The carried columns that files have, of rows that a parser gave."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(layout.in_files)
    return {
        name: pa.array(values, layout.carried.field(name).type)
        for name, values in zip(layout.in_files, columns, strict=True)
    }
