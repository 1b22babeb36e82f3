"""The end of a run: every row accounted for, the report written, `_SUCCESS` last. No Ray here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raydiff.corpus.commit import (
    Part,
    PartDetails,
    read_details,
    remove_unnamed_errors,
    settle_parts,
)
from raydiff.corpus.directory import SUCCESS_NAME, RunDirectory
from raydiff.corpus.files import Folder
from raydiff.corpus.inputs import Inputs
from raydiff.corpus.report import Session, finished_report
from raydiff.errors import ClusterError

MAX_ID_BYTES = 2**30
"""Above this many bytes of ids, repeated ids are not counted: they must fit in memory."""

_THREADS = 16


def close(run: RunDirectory, session: Session, repeated_ids: int | None) -> dict[str, Any]:
    """Check that every row is accounted for, write the report, and `_SUCCESS` last.

    Raises:
        ClusterError: a shard is not committed.
    """
    parts = settle_parts(run.folder)
    _require_complete(run, parts)
    remove_unnamed_errors(run.folder, parts)
    details = _read_all_details(run.folder, parts.values())
    report = finished_report(run, parts, details, session, repeated_ids)
    run.write_report(report)
    run.folder.put(SUCCESS_NAME, b"")
    return report


def _require_complete(run: RunDirectory, parts: Mapping[str, Part]) -> None:
    """Check from the names that every planned row is in exactly one committed part.

    Raises:
        ClusterError: a shard is missing or has other rows than planned.
    """
    wrong = [
        shard.shard_id
        for shard in run.shards
        if (part := parts.get(shard.shard_id)) is None or part.rows + part.errors != shard.rows
    ]
    rows = sum(part.rows + part.errors for part in parts.values())
    if wrong or rows != run.inputs.rows:
        raise ClusterError(
            f"{len(wrong)} of {len(run.shards)} shards are not committed ({wrong[:3]}); {rows} of "
            f"{run.inputs.rows} rows are done. Run the same command again to continue."
        )


def _read_all_details(folder: Folder, parts: Iterable[Part]) -> list[PartDetails]:
    """Metadata of every part; no rows are read."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda part: read_details(folder, part), parts))


def count_repeated_ids(inputs: Inputs) -> int | None:
    """Rows whose id an earlier row has too; nulls do not count.

    `None` when there are too many ids to hold.
    """
    column = inputs.columns.id
    if column is None:
        return 0
    if sum(group.id_bytes for file in inputs.files for group in file.groups) > MAX_ID_BYTES:
        return None
    folder = Folder(inputs.root)
    chunks: list[pa.Array[Any]] = []
    for file in inputs.files:
        with folder.open(file.name) as stream:
            ids = pq.read_table(stream, columns=[column]).column(0)
        chunks += ids.chunks if not pa.types.is_dictionary(ids.type) else _plain(ids).chunks
    ids = pa.chunked_array(chunks) if chunks else pa.chunked_array([pa.array([], pa.null())])
    present = len(ids) - ids.null_count
    return int(present - pc.count_distinct(ids).as_py())


def _plain(ids: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    return ids.cast(ids.type.value_type)
