"""One column of a whole file, without its documents."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from raydiff.corpus.inputs import InputLayout
from raydiff.corpus.inputs.partitions import partition_values
from raydiff.corpus.inputs.types import conform
from raydiff.corpus.reading.parquet import ParquetRows, Unreadable
from raydiff.corpus.reading.text_rows import open_rows
from raydiff.corpus.reading.text_values import delimited_parser, json_parser
from raydiff.storage import Folder

_BATCH = 4096


def iter_column(
    folder: Folder, layout: InputLayout, file: str, column: str
) -> Iterator[pa.ChunkedArray[Any]]:
    """The values of a carried column, in order, in batches; null where they cannot be read.

    Of a column in directory names there is one value, once.

    Raises:
        InputError: the file is gone.
        StorageError: the store refused or is out of reach.
    """
    kind: Any = layout.carried.field(column).type
    if column in layout.partitions.names:
        found = partition_values(file, layout.partitions, folder.path(file))
        yield pa.chunked_array([pa.array([found[column]], kind)])
    elif layout.format == "parquet":
        for values in _parquet_column(folder, file, column):
            yield conform(values, kind)
    else:
        yield from _text_column(folder, layout, file, column)


def _parquet_column(folder: Folder, file: str, column: str) -> Iterator[pa.ChunkedArray[Any]]:
    rows = ParquetRows(folder, file, [column])
    try:
        for found in rows.read(rows.whole()):
            if isinstance(found, Unreadable):
                yield pa.chunked_array([pa.nulls(found.rows)])
            else:
                yield found.column(column)
    finally:
        rows.close()


def _text_column(
    folder: Folder, layout: InputLayout, file: str, column: str
) -> Iterator[pa.ChunkedArray[Any]]:
    kind: Any = layout.carried.field(column).type
    header, records, stream = open_rows(folder, file)
    with stream:
        parse = (
            json_parser(layout.columns.text, [(column, kind)])
            if header is None
            else delimited_parser(header, layout.columns.text, [column])
        )
        while batch := list(itertools.islice(records, _BATCH)):
            yield pa.chunked_array([pa.array([parse(record)[1][0] for record in batch], kind)])
