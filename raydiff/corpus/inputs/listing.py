"""The files of an input, sorted by name, as columns: about 100 bytes a file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from raydiff.storage import Entry

_CHUNK = 8192
_FIELDS: list[pa.Field[Any]] = [
    pa.field("name", pa.string()),
    pa.field("size_bytes", pa.int64()),
    pa.field("version", pa.string()),
]
_SCHEMA = pa.schema(_FIELDS)


class Listing:
    """Entries of one listing, in the order of their names."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        pending = iter(entries)
        batches: list[pa.RecordBatch] = []
        while chunk := list(itertools.islice(pending, _CHUNK)):
            arrays: list[pa.Array[Any]] = [
                pa.array([entry.name for entry in chunk], pa.string()),
                pa.array([entry.size_bytes for entry in chunk], pa.int64()),
                pa.array([entry.version for entry in chunk], pa.string()),
            ]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
        self.table = pa.Table.from_batches(batches, schema=_SCHEMA).sort_by("name")
        """Columns name, size_bytes and version."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Entry]:
        for batch in self.table.to_batches(max_chunksize=_CHUNK):
            columns = (column.to_pylist() for column in batch.columns)
            for name, size_bytes, version in zip(*columns, strict=True):
                yield Entry(name=name, size_bytes=size_bytes, version=version)
