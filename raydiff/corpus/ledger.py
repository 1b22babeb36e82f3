"""The ledger: what names do not say of committed parts, so that no part need be opened for it.

`ledger/LEVEL-ID.parquet` files have one row per part file that was ever committed: tokens, times,
types of errors, sizes and checksums. The driver appends a file now and then, and merges sixteen
files of a level into one of the next, so that there are few. A row that was lost with a driver can
be had from the part itself; rows of parts that are there no more do no harm.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.corpus.commit import ShardReport
from raydiff.corpus.parts import Part
from raydiff.corpus.shards import Integers
from raydiff.errors import StorageError
from raydiff.storage import Folder

LEDGER_FOLDER = "ledger"
FLUSH_ROWS = 1000
FLUSH_AFTER_S = 30.0
FILES_OF_A_LEVEL = 16
MAX_FILE_ROWS = 2**20
"""The end of a run leaves one file for so many rows."""

_TOP_LEVEL = 9
_NAME = re.compile(rf"{LEDGER_FOLDER}/(?P<level>\d)-[0-9a-f]{{32}}\.parquet")
_log = logging.getLogger(__name__)

_FIELDS: list[tuple[str, Any]] = [
    ("first", pa.int32()),
    ("last", pa.int32()),
    ("rows", pa.int32()),
    ("errors", pa.int32()),
    ("prompt_tokens", pa.int64()),
    ("completion_tokens", pa.int64()),
    ("forwards", pa.int64()),
    ("duplicates", pa.int64()),
    ("started_ms", pa.int64()),
    ("finished_ms", pa.int64()),
    ("error_types", pa.string()),
    ("part_bytes", pa.int64()),
    ("part_checksum", pa.binary(8)),
    ("errors_file", pa.string()),
    ("errors_bytes", pa.int64()),
    ("errors_checksum", pa.binary(8)),
]
SCHEMA = pa.schema(_FIELDS)
TOTALS = ("prompt_tokens", "completion_tokens", "forwards", "duplicates")
KEY = ("first", "last", "rows", "errors")
"""Together they are a part's name."""


def ledger_row(report: ShardReport) -> dict[str, Any]:
    """The row of one shard's part."""
    return part_row(report.part, report)


def part_row(part: Part, report: ShardReport) -> dict[str, Any]:
    """The row of a part, made by compaction or not."""
    return {
        "first": part.first,
        "last": part.last,
        "rows": report.rows,
        "errors": report.errors,
        **{name: getattr(report.totals, name) for name in TOTALS},
        "started_ms": round(report.started_s * 1000),
        "finished_ms": round(report.finished_s * 1000),
        "error_types": json.dumps(report.error_types) if report.error_types else None,
        "part_bytes": report.part_bytes,
        "part_checksum": bytes.fromhex(report.part_checksum) or None,
        "errors_file": report.errors_file,
        "errors_bytes": report.errors_bytes,
        "errors_checksum": bytes.fromhex(report.errors_checksum) or None,
    }


class LedgerWriter:
    """Appends rows as they come, a file for many of them."""

    def __init__(
        self,
        folder: Folder,
        *,
        flush_rows: int = FLUSH_ROWS,
        flush_after_s: float = FLUSH_AFTER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._flush_rows = flush_rows
        self._flush_after_s = flush_after_s
        self._clock = clock
        self._rows: list[dict[str, Any]] = []
        self._flushed_s = clock()
        self._levels: dict[int, list[str]] | None = None

    def add(self, report: ShardReport) -> None:
        """Note a committed shard. What a driver's death loses, `close` reads from the parts."""
        self.add_row(ledger_row(report))

    def add_row(self, row: dict[str, Any]) -> None:
        """Note a part."""
        self._rows.append(row)
        late = self._clock() - self._flushed_s >= self._flush_after_s
        if len(self._rows) >= self._flush_rows or late:
            self.try_to_flush()

    def try_to_flush(self) -> None:
        """Write what is noted, or keep it for the next time when the store refuses."""
        self._flushed_s = self._clock()
        try:
            self.flush()
        except (OSError, StorageError) as error:
            self._levels = None
            _log.warning("The ledger cannot be written now (%s); it is tried again.", error)

    def flush(self) -> None:
        """Write what is noted."""
        if not self._rows:
            return
        self._put(0, pa.Table.from_pylist(self._rows, schema=SCHEMA))
        self._rows = []
        level = 0
        while level < _TOP_LEVEL and len(self._known().get(level, ())) >= FILES_OF_A_LEVEL:
            self._merge(self._known()[level], level + 1)
            level += 1

    def replace(self, table: pa.Table) -> None:
        """Let these rows be all that the ledger has, in as few files as there can be."""
        old = ledger_files(self._folder)
        self._rows, self._levels = [], None
        for start in range(0, table.num_rows, MAX_FILE_ROWS):
            self._put(_TOP_LEVEL, table.slice(start, MAX_FILE_ROWS))
        self._folder.delete_many(old)
        self._levels = None

    def _known(self) -> dict[int, list[str]]:
        if self._levels is None:
            self._levels = {}
            for name in ledger_files(self._folder):
                self._levels.setdefault(_level(name), []).append(name)
        return self._levels

    def _put(self, level: int, table: pa.Table) -> None:
        known = self._known()
        name = f"{LEDGER_FOLDER}/{level}-{uuid.uuid4().hex}.parquet"
        self._folder.put(name, _parquet(table))
        known.setdefault(level, []).append(name)

    def _merge(self, names: list[str], level: int) -> None:
        """Put the rows of several files into new ones, then delete the files.

        A kill between leaves rows twice, which readers drop.
        """
        names = list(names)
        table = latest_rows(pa.concat_tables(_read(self._folder, name) for name in names))
        for start in range(0, max(table.num_rows, 1), MAX_FILE_ROWS):
            self._put(level, table.slice(start, MAX_FILE_ROWS))
        self._folder.delete_many(names)
        known = self._known()
        for name in names:
            known[_level(name)].remove(name)


def ledger_files(folder: Folder) -> list[str]:
    """Names of the ledger's files."""
    return sorted(e.name for e in folder.entries(LEDGER_FOLDER) if _NAME.fullmatch(e.name))


def read_ledger(folder: Folder, columns: Iterable[str] | None = None) -> pa.Table:
    """All rows, the latest one of each part, in the order of the plan; about a hundred bytes of
    memory each, less when only some columns are asked for."""
    wanted = list(dict.fromkeys([*KEY, "finished_ms", *columns])) if columns is not None else None
    tables = [_read(folder, name, wanted) for name in ledger_files(folder)]
    schema = SCHEMA if wanted is None else pa.schema([SCHEMA.field(name) for name in wanted])
    return latest_rows(pa.concat_tables([schema.empty_table(), *tables]))


def shard_table(ledger: pa.Table) -> pa.Table:
    """One row per shard: `position`, `rows`, `errors`, tokens, forwards, duplicates, `started_s`
    and `finished_s` in Unix time, and `error_types` as JSON or null."""
    single = ledger.filter(pa.array(_column(ledger, "first") == _column(ledger, "last")))
    columns: dict[str, Any] = {"position": single["first"]}
    columns |= {name: single[name] for name in ("rows", "errors", *TOTALS)}
    for name in ("started", "finished"):
        columns[f"{name}_s"] = pa.array(_column(single, f"{name}_ms") / 1000)
    columns["error_types"] = single["error_types"]
    return pa.table(columns)


def find_rows(ledger: pa.Table, table: dict[str, Integers]) -> Integers:
    """For each part of columns like `Committed.table`, the index of its row, or -1."""
    if not ledger.num_rows:
        return np.full(len(table["first"]), -1)
    ours = _keys([_column(ledger, name) for name in KEY])
    wanted = _keys([table[name] for name in KEY])
    order = np.argsort(ours, kind="stable")
    at = np.minimum(np.searchsorted(ours[order], wanted), ours.size - 1)
    return np.where(ours[order][at] == wanted, order[at], -1)


def _keys(columns: list[Integers]) -> Integers:
    """Columns as one column of comparable keys."""
    keys = np.empty(len(columns[0]), dtype=[(name, np.int64) for name in KEY])
    for name, column in zip(KEY, columns, strict=True):
        keys[name] = column
    return keys


def latest_rows(table: pa.Table) -> pa.Table:
    """Of rows with one key the one of the latest commit, sorted by key."""
    if not table.num_rows:
        return table
    columns = [_column(table, name) for name in KEY]
    order = np.lexsort((_column(table, "finished_ms"), *reversed(columns)))
    keys = _keys([column[order] for column in columns])
    last = np.append(keys[1:] != keys[:-1], True)
    return table.take(pa.array(order[last])).combine_chunks()


def _column(table: pa.Table, name: str) -> Integers:
    column: Integers = table[name].to_numpy()
    return column


def _read(folder: Folder, name: str, columns: list[str] | None = None) -> pa.Table:
    """The rows of a file; none if it is damaged, for they can be had from the parts."""
    schema = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
    content = pa.BufferReader(folder.read(name))
    try:
        table = pq.read_table(content, columns=columns, page_checksum_verification=True)
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, OSError, KeyError) as error:
        _log.warning("%s is damaged and not used: %s", folder.path(name), error)
        return schema.empty_table()


def damaged_files(folder: Folder) -> list[str]:
    """Files of the ledger that cannot be read."""
    return [name for name in ledger_files(folder) if not _read(folder, name).num_rows]


def _level(name: str) -> int:
    match = _NAME.fullmatch(name)
    assert match is not None, name
    return int(match["level"])


def _parquet(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    numbers = [field.name for field in SCHEMA if pa.types.is_integer(field.type)]
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=False,
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        write_statistics=False,
        write_page_checksum=True,
    )
    return sink.getvalue()
