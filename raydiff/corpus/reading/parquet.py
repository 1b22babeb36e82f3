"""Rows of one Parquet file: needed column chunks only, streamed in batches bounded in bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.corpus.inputs.footers import chunks_of
from raydiff.corpus.inputs.paths import find_path, take_path
from raydiff.corpus.plan import Span
from raydiff.errors import InputError
from raydiff.storage import Folder

_BATCH_ROWS = 1024
_BATCH_BYTES = 2 * 2**20
_AT_ONCE_BYTES = 16 * 2**20
"""Column chunks of a row group up to this size together are fetched at once."""
_BUFFER_BYTES = 4 * 2**20
"""Larger ones are read in pieces of this size, so that a huge row group needs no more memory."""
_FINER = 16


@dataclass(frozen=True)
class Unreadable:
    """Rows whose pages cannot be decoded; trying again will not help."""

    rows: int
    message: str


class ParquetRows:
    """The rows of a file, cheapest in order: a row group is decoded from its start."""

    def __init__(self, folder: Folder, file: str, names: list[str]) -> None:
        """Reads the footer. `names` are columns, nested ones by dotted path."""
        self.file = file
        self._folder = folder
        self._names = names
        self._path = folder.path(file)
        self._at_once: bool | None = None
        self._parquet = self._open(at_once=True, metadata=None)
        self._metadata: Any = self._parquet.metadata
        groups = range(self._metadata.num_row_groups)
        rows = (self._metadata.row_group(group).num_rows for group in groups)
        self._starts = list(itertools.accumulate(rows, initial=0))
        """Rows before each row group, and all."""
        self._chunks = chunks_of(self._metadata, names) if groups else []
        self._cursor: _Cursor | None = None
        self._broken: dict[int, int] = {}
        """Row groups that cannot be decoded, and from which of their rows on."""

    def read(self, span: Span) -> Iterator[pa.Table | Unreadable]:
        """The span's rows in order, as tables of its columns.

        Raises:
            InputError: the file has other rows than planned.
        """
        self._require_planned(span)
        left = span.rows
        start = span.skip_rows
        for group in range(span.first_group, span.stop_group):
            rows = min(left, self._metadata.row_group(group).num_rows - start)
            yield from self._read_group(group, start, start + rows, self._batch_rows(group))
            left -= rows
            start = 0

    def whole(self) -> Span:
        """All rows of the file."""
        rows, groups = self._metadata.num_rows, self._metadata.num_row_groups
        return Span(file=self.file, row_start=0, rows=rows, stop_group=groups)

    def can_go_on(self, span: Span) -> bool:
        """Whether the span is ahead in this file."""
        return self.file == span.file

    def close(self) -> None:
        """Let go of the file."""
        self._cursor = None
        self._parquet.close(force=True)

    def _require_planned(self, span: Span) -> None:
        known = span.stop_group < len(self._starts)
        if (
            not known
            or self._starts[span.first_group] + span.skip_rows != span.row_start
            or self._starts[span.stop_group] < span.row_start + span.rows
        ):
            message = f"input: {self._path} has other rows than when the run was planned."
            raise InputError(message, "input")

    def _batch_rows(self, group: int) -> int:
        """Rows that have about `_BATCH_BYTES`."""
        row_bytes = self._chunk_bytes(group, compressed=False) / max(
            1, self._metadata.row_group(group).num_rows
        )
        return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(1.0, row_bytes))))

    def _chunk_bytes(self, group: int, *, compressed: bool) -> int:
        found = self._metadata.row_group(group)
        chunks = [found.column(i) for i in self._chunks]
        sizes = (
            c.total_compressed_size if compressed else c.total_uncompressed_size for c in chunks
        )
        return sum(sizes)

    def _read_group(
        self, group: int, start: int, stop: int, batch_rows: int
    ) -> Iterator[pa.Table | Unreadable]:
        if start >= self._broken.get(group, stop):
            yield Unreadable(stop - start, f"{self._path}: row group {group} is corrupt.")
            return
        try:
            cursor = self._reach(group, start, batch_rows)
            while start < stop:
                table = cursor.take(stop - start)
                yield table
                start += table.num_rows
        except (pa.ArrowException, OSError) as error:
            self._cursor = None
            if not _is_corruption(error):
                raise
            if batch_rows > 1:
                # In smaller batches, more rows come out before the ones that are broken.
                yield from self._read_group(group, start, stop, max(1, batch_rows // _FINER))
                return
            self._broken[group] = start
            yield Unreadable(stop - start, f"{self._path}: row group {group}: {error}")

    def _reach(self, group: int, row: int, batch_rows: int) -> _Cursor:
        cursor = self._cursor
        if cursor is None or cursor.group != group or cursor.row > row:
            cursor = self._cursor = self._begin(group, batch_rows)
        cursor.skip_to(row)
        return cursor

    def _begin(self, group: int, batch_rows: int) -> _Cursor:
        at_once = self._chunk_bytes(group, compressed=True) <= _AT_ONCE_BYTES
        if at_once != self._at_once:
            self._parquet.close(force=True)
            self._parquet = self._open(at_once=at_once, metadata=self._metadata)
        columns = self._names or None
        batches = self._parquet.iter_batches(
            batch_rows, row_groups=[group], columns=columns, use_threads=False
        )
        return _Cursor(group, batches, self._parquet.schema_arrow, self._names)

    def _open(self, *, at_once: bool, metadata: Any) -> pq.ParquetFile:
        self._at_once = at_once
        return pq.ParquetFile(
            self._folder.open(self.file),
            metadata=metadata,
            pre_buffer=at_once,
            buffer_size=0 if at_once else _BUFFER_BYTES,
            page_checksum_verification=True,
        )


class _Cursor:
    """A place in a row group, from which rows are taken in order."""

    def __init__(
        self, group: int, batches: Iterator[Any], schema: pa.Schema, names: list[str]
    ) -> None:
        self.group = group
        self.row = 0
        self._batches = batches
        self._rest: Any = None
        self._paths = {name: _path(schema, name) for name in names}

    def skip_to(self, row: int) -> None:
        while self.row < row:
            self._next(row - self.row)

    def take(self, most: int) -> pa.Table:
        table = pa.Table.from_batches([self._next(most)])
        columns = [take_path(table, path) for path in self._paths.values()]
        return pa.Table.from_arrays(columns, names=list(self._paths))

    def _next(self, most: int) -> Any:
        batch = self._rest if self._rest is not None else next(self._batches, None)
        if batch is None:
            raise pa.ArrowInvalid("The row group ends before its last row.")
        self._rest = batch.slice(most) if batch.num_rows > most else None
        self.row += min(most, batch.num_rows)
        return batch.slice(0, most)


def _path(schema: pa.Schema, name: str) -> list[str]:
    found = find_path(schema, name)
    if found is None:
        raise pa.ArrowInvalid(f"There is no column {name!r} any more.")
    return found[0]


def _is_corruption(error: Exception) -> bool:
    """Arrow reports undecodable pages as its own errors, or as OSError without an errno."""
    return not isinstance(error, OSError) or error.errno is None
