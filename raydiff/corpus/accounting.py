"""Brings the ledger up to the parts: rows that were lost are read from the parts, rows of parts
that are gone are dropped, many files become few."""

from __future__ import annotations

import base64
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raydiff.corpus.commit import (
    METADATA_KEY,
    PartDetails,
    Totals,
    details_of,
    read_report,
    report_of,
)
from raydiff.corpus.ledger import (
    MAX_FILE_ROWS,
    SCHEMA,
    TOTALS,
    LedgerWriter,
    find_rows,
    latest_rows,
    ledger_files,
    ledger_row,
    part_row,
    read_ledger,
)
from raydiff.corpus.parts import Committed, Part
from raydiff.errors import RunConflict
from raydiff.storage import Folder

SHARDS_KEY = b"raydiff.shards"
"""Of the metadata of merged parts: the ledger's rows of their shards."""
_THREADS = 16


def settle_ledger(
    folder: Folder, writer: LedgerWriter, committed: Committed, *, rebuild: bool = False
) -> pa.Table:
    """Make the ledger tell of the committed parts, all of them and nothing else.

    Only parts that it has no row of are opened; all of them with `rebuild`.

    Returns:
        The ledger.

    Raises:
        RunConflict: one of these is damaged.
    """
    writer.flush()
    files = ledger_files(folder)
    saved = SCHEMA.empty_table() if rebuild else read_ledger(folder)
    ledger = saved.filter(pa.array(_current(saved, committed)))
    lost = np.flatnonzero(find_rows(ledger, committed.table) < 0)
    if lost.size:
        with ThreadPoolExecutor(_THREADS) as pool:
            parts = (committed.part(int(index)) for index in lost)
            found = list(pool.map(lambda part: _rows_of(folder, part), parts))
        rows = [pa.concat_tables(found), ledger]
        ledger = latest_rows(pa.concat_tables(rows))
    if lost.size or ledger.num_rows != saved.num_rows or len(files) > _files_for(ledger.num_rows):
        writer.replace(ledger)
    return ledger


def _files_for(rows: int) -> int:
    return max(1, -(-rows // MAX_FILE_ROWS))


def _current(ledger: pa.Table, committed: Committed) -> Any:
    """Whether rows are of committed parts, or of shards that a merged part has."""
    first, last = (ledger[name].to_numpy() for name in ("first", "last"))
    table = committed.table
    if not len(committed):
        return np.zeros(len(first), bool)
    at = np.maximum(np.searchsorted(table["first"], first, side="right") - 1, 0)
    same = np.ones(len(first), bool)
    for name in ("first", "last", "rows", "errors"):
        same &= table[name][at] == ledger[name].to_numpy()
    inside = (table["first"][at] <= first) & (last <= table["last"][at]) & table["merged"][at]
    return same | (inside & (first == last))


def _rows_of(folder: Folder, part: Part) -> pa.Table:
    try:
        return rows_from_part(folder, part)
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise RunConflict(
            f"output: {folder.path(part.name)} is damaged: {error}. Delete it and resume the run "
            "to have its documents generated again; `raydiff runs verify` lists all such files.",
            "output",
        ) from error


def rows_from_part(folder: Folder, part: Part) -> pa.Table:
    """The ledger's rows of a part and of the shards that were merged into it, from its file.

    Raises:
        ValueError: it is damaged.
    """
    if part.digest is not None:
        return pa.Table.from_pylist([ledger_row(read_report(folder, part))], schema=SCHEMA)
    content = folder.read(part.name)
    row = merged_row(part, details_of(content), content)
    metadata = pq.read_metadata(pa.BufferReader(content)).metadata or {}
    shards = decode_rows(metadata[SHARDS_KEY])
    return pa.concat_tables([pa.Table.from_pylist([row], schema=SCHEMA), shards])


def merged_row(part: Part, details: PartDetails, content: bytes | pa.Buffer) -> dict[str, Any]:
    """The ledger's row of a merged part."""
    return part_row(part, report_of(part, details, content))


def merged_metadata(details: PartDetails, shards: pa.Table) -> dict[str, str]:
    """The metadata of a merged part."""
    return {
        METADATA_KEY.decode(): json.dumps(asdict(details)),
        SHARDS_KEY.decode(): encode_rows(shards),
    }


def encode_rows(table: pa.Table) -> str:
    """Rows of the ledger as text, for a part's metadata."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return base64.b64encode(sink.getvalue()).decode()


def decode_rows(text: bytes) -> pa.Table:
    """The inverse of `encode_rows`."""
    return pq.read_table(pa.BufferReader(base64.b64decode(text))).cast(SCHEMA)


def sum_totals(rows: pa.Table) -> Totals:
    """What the shards of some rows cost together."""
    return Totals(**{name: int(pc.sum(rows[name]).as_py() or 0) for name in TOTALS})


def sum_error_types(rows: pa.Table) -> dict[str, int]:
    """Failed documents of the shards of some rows by type of error."""
    total: Counter[str] = Counter()
    counts: Any = pc.value_counts(rows["error_types"])
    for text, times in zip(counts.field("values"), counts.field("counts"), strict=True):
        if text.is_valid:
            types = json.loads(text.as_py())
            total.update({kind: number * times.as_py() for kind, number in types.items()})
    return dict(sorted(total.items()))
