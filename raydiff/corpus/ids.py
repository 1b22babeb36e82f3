"""How many rows repeat an id that an earlier row has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raydiff.corpus.inputs import Inputs

MAX_ID_BYTES = 2**30
"""Above this many bytes of ids, repeated ids are not counted: they must fit in memory."""


def count_repeated_ids(inputs: Inputs) -> int | None:
    """Rows whose id an earlier row has too; nulls do not count. Reads the id column only.

    `None` when there are too many ids to hold, or when they cannot be read.
    """
    column = inputs.columns.id
    if column is None:
        return 0
    if sum(group.id_bytes for file in inputs.files for group in file.groups) > MAX_ID_BYTES:
        return None
    chunks: list[pa.Array[Any]] = []
    try:
        for file in inputs.files:
            with inputs.folder.open(file.name) as stream:
                chunks += _plain(pq.ParquetFile(stream).read(columns=[column]).column(0)).chunks
        ids = pa.chunked_array(chunks)
        return int(len(ids) - ids.null_count - pc.count_distinct(ids).as_py())
    except (OSError, pa.ArrowException):
        return None


def _plain(ids: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    return ids.cast(ids.type.value_type) if pa.types.is_dictionary(ids.type) else ids
