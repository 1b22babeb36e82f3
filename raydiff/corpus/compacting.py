"""Merges the parts of consecutive shards into files of a target size.

A merged part stands for all shards of its range from the moment it is there, so a kill at any
point loses and doubles nothing: the next one to open the run deletes what was merged. `_SUCCESS` is
away while rows may be there twice. Errors files are merged with their parts.

Memory: the sources of one merged file, the file itself, and a row group: about three times the
target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.corpus.accounting import (
    merged_metadata,
    merged_row,
    settle_ledger,
    sum_error_types,
    sum_totals,
)
from raydiff.corpus.commit import PartDetails, checksum, errors_name
from raydiff.corpus.ledger import SCHEMA, find_rows
from raydiff.corpus.parts import Committed, Part, range_label, settle_parts
from raydiff.corpus.runs import SUCCESS_NAME, HeldRun, SavedRun, hold_run
from raydiff.errors import RunConflict
from raydiff.storage import Folder

_THREADS = 16
_GROUP_ROWS = 65536
_GROUP_BYTES = 32 * 2**20


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """What came of it."""

    parts_before: int
    parts_after: int
    bytes_before: int
    bytes_after: int
    complete: bool
    """Whether `_SUCCESS` is there."""


def compact(
    run: SavedRun, target_bytes: int, on_merge: Callable[[Part], None] = lambda part: None
) -> Compaction:
    """Merge small parts of consecutive committed shards, also of a run that is not finished.

    Raises:
        RunConflict: a driver has the run, or a part is damaged.
    """
    with hold_run(run) as held:
        before = held.committed
        groups = list(group_parts(before, target_bytes))
        done = held.complete and run.report().get("status") == "done"
        if groups:
            run.folder.delete(SUCCESS_NAME)
        after, size = len(before), before.size_bytes
        for group in groups:
            for part, content_bytes in _merge(held, [before.part(index) for index in group]):
                on_merge(part)
                inside = _inside(before, part)
                after -= int(inside.sum()) - 1
                size += content_bytes - int(before.table["size_bytes"][inside].sum())
        held.held.check()
        if groups:
            settle_ledger(run.folder, held.writer, settle_parts(run.folder, run.plan))
        if done:
            run.folder.put(SUCCESS_NAME, b"")
    return Compaction(
        parts_before=len(before),
        parts_after=after,
        bytes_before=before.size_bytes,
        bytes_after=size,
        complete=done,
    )


def _inside(committed: Committed, part: Part) -> Any:
    table = committed.table
    return (table["first"] >= part.first) & (table["last"] <= part.last)


def group_parts(committed: Committed, target_bytes: int) -> Iterator[list[int]]:
    """Indices of the parts to be merged: neighbours without a gap, of at most the target together.

    A part of more than half the target stays as it is, so that nothing is rewritten again and
    again.
    """
    group: list[int] = []
    size, reach = 0, -1
    table = committed.table
    rows = zip(
        table["first"].tolist(), table["last"].tolist(), table["size_bytes"].tolist(), strict=True
    )
    for index, (first, last, part_bytes) in enumerate(rows):
        large = part_bytes > target_bytes // 2
        if large or first != reach + 1 or size + part_bytes > target_bytes:
            if len(group) > 1:
                yield group
            group, size = [], 0
        if not large:
            group.append(index)
            size += part_bytes
        reach = last
    if len(group) > 1:
        yield group


@dataclass(frozen=True)
class _Source:
    """A part with its content, and its errors file's."""

    part: Part
    content: bytes
    errors_file: str | None
    errors: bytes | None


def _merge(held: HeldRun, parts: Sequence[Part]) -> Iterator[tuple[Part, int]]:
    """Merge neighbours, and give the new parts with their sizes: more than one where an upgrade
    changed the columns halfway."""
    with ThreadPoolExecutor(_THREADS) as pool:
        sources = list(pool.map(lambda part: _read(held, part), parts))
    for same in _same_columns(sources):
        if len(same) > 1:
            yield _merge_same(held, same)


def _same_columns(sources: Sequence[_Source]) -> Iterator[list[_Source]]:
    """Runs of sources whose columns are the same, in the parts and in the errors files."""
    run: list[_Source] = []
    schema = errors = None
    for source in sources:
        own_errors = None if source.errors is None else _schema(source.errors)
        other = own_errors is not None and errors is not None and own_errors != errors
        if run and (_schema(source.content) != schema or other):
            yield run
            run, errors = [], None
        run.append(source)
        schema, errors = _schema(source.content), own_errors or errors
    yield run


def _read(held: HeldRun, part: Part) -> _Source:
    """A part's content, checked: what is damaged must not be merged, and its source deleted."""
    row = _ledger_row(held, part)
    content = held.folder.read(part.name)
    _require(held.folder, part.name, content, row["part_checksum"])
    name = row["errors_file"]
    errors = None
    if name is not None:
        errors = held.folder.read(name)
        _require(held.folder, name, errors, row["errors_checksum"])
    return _Source(part, content, name, errors)


def _ledger_row(held: HeldRun, part: Part) -> dict[str, Any]:
    key = {name: np.array([getattr(part, name)]) for name in ("first", "last", "rows", "errors")}
    (index,) = find_rows(held.ledger, key)
    assert index >= 0, part
    row: dict[str, Any] = held.ledger.slice(int(index), 1).to_pylist()[0]
    return row


def _require(folder: Folder, name: str, content: bytes, expected: bytes | None) -> None:
    if expected is not None and checksum(content) != expected.hex():
        raise RunConflict(
            f"run_dir: {folder.path(name)} is damaged: its checksum is {checksum(content)}, "
            f"expected {expected.hex()}. `raydiff runs verify` lists all such files; delete the "
            "part and resume the run to have its documents generated again.",
            "run_dir",
        )


def _merge_same(held: HeldRun, sources: Sequence[_Source]) -> tuple[Part, int]:
    folder, ledger = held.folder, held.ledger
    part = Part(
        first=sources[0].part.first,
        last=sources[-1].part.last,
        digest=None,
        rows=sum(source.part.rows for source in sources),
        errors=sum(source.part.errors for source in sources),
    )
    label = range_label(part.first, part.last, None)
    errors_file, errors = None, None
    if part.errors:
        errors = merge_files([s.errors for s in sources if s.errors is not None], {}, part.errors)
        errors_file = errors_name(label)
        folder.put(errors_file, errors)
    shards = _shard_rows(ledger, part)
    details = PartDetails(
        totals=sum_totals(shards),
        started_s=float(shards["started_ms"].to_numpy().min()) / 1000,
        finished_s=float(shards["finished_ms"].to_numpy().max()) / 1000,
        errors_file=errors_file,
        errors_bytes=len(errors) if errors is not None else 0,
        errors_checksum=checksum(errors) if errors is not None else "",
        error_types=sum_error_types(shards),
    )
    content = merge_files(
        [source.content for source in sources], merged_metadata(details, shards), part.rows
    )
    held.held.check()
    folder.put(part.name, content)
    held.writer.add_row(merged_row(part, details, content))
    held.writer.flush()
    folder.delete_many(source.part.name for source in sources)
    folder.delete_many(s.errors_file for s in sources if s.errors_file is not None)
    return part, len(content)


def _shard_rows(ledger: pa.Table, part: Part) -> pa.Table:
    first, last = (ledger[name].to_numpy() for name in ("first", "last"))
    inside = (first >= part.first) & (last <= part.last) & (first == last)
    rows = ledger.filter(pa.array(inside)).select(SCHEMA.names)
    assert rows.num_rows == part.shards, (part, rows.num_rows)
    return rows


def merge_files(contents: Sequence[bytes], metadata: dict[str, str], rows: int) -> pa.Buffer:
    """One Parquet file with the rows of several, in row groups fit for readers."""
    schema = _schema(contents[0])
    sink = pa.BufferOutputStream()
    written = 0
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for table in _row_groups(contents, schema):
            writer.write_table(table)
            written += table.num_rows
        writer.add_key_value_metadata(metadata)
    assert written == rows, (written, rows)
    return sink.getvalue()


def _row_groups(contents: Sequence[bytes], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of all files, put together to row groups of a good size."""
    tables: list[pa.Table] = []
    rows = size = 0
    for content in contents:
        file = pq.ParquetFile(pa.BufferReader(content))
        for index in range(file.num_row_groups):
            table = file.read_row_group(index).replace_schema_metadata(None)
            tables.append(table.cast(schema))
            rows, size = rows + table.num_rows, size + table.nbytes
            if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                yield pa.concat_tables(tables).combine_chunks()
                tables, rows, size = [], 0, 0
    if tables:
        yield pa.concat_tables(tables).combine_chunks()


def _schema(content: bytes) -> pa.Schema:
    return pq.read_schema(pa.BufferReader(content)).remove_metadata()
