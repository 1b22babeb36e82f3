"""The plan: every input row in exactly one shard, decided once and kept in `plan.parquet`.

A shard is a run of whole row groups, or a run of rows inside a large one. It is the unit of
scheduling, of commit and of resume.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.corpus.files import Folder
from raydiff.corpus.inputs import InputFile
from raydiff.errors import RunConflict

PLAN_NAME = "plan.parquet"
MAX_SHARD_TEXT_BYTES = 8 * 2**20
"""A shard's text and tokens (about ten times its bytes) are in memory at once, so large documents
make shards of fewer rows."""

_METADATA_KEY = b"raydiff.plan"


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A run of rows of one file."""

    shard_id: str
    """Position in the plan and a hash of file and rows: stable, unique, sorted like the input."""
    file: str
    row_start: int
    """Index in the file of the first row."""
    rows: int
    first_group: int
    """First row group that holds a row of the shard."""
    stop_group: int
    """One past the last such row group."""
    skip_rows: int
    """Rows of the first row group that come before the shard."""


_SCHEMA = pa.schema(
    [
        pa.field(f.name, pa.string() if f.type == "str" else pa.int64(), nullable=False)
        for f in fields(Shard)
    ]
)


def cut_into_shards(
    files: Sequence[InputFile],
    shard_rows: int,
    max_text_bytes: int = MAX_SHARD_TEXT_BYTES,
) -> list[Shard]:
    """Cut files into shards of at most `shard_rows` rows; files without rows give none.

    A large row group is cut into parts of nearly equal size. Whole small row groups are joined.
    """
    shards: list[Shard] = []
    for file in files:
        for span in _spans(file, shard_rows, max_text_bytes):
            shards.append(_shard(len(shards), file.name, span))
    return shards


@dataclass(frozen=True)
class _Span:
    row_start: int
    rows: int
    first_group: int
    stop_group: int
    skip_rows: int


def _spans(file: InputFile, shard_rows: int, max_text_bytes: int) -> Iterator[_Span]:
    row, first, rows, text_bytes = 0, 0, 0, 0
    for index, group in enumerate(file.groups):
        fits = rows + group.rows <= shard_rows and text_bytes + group.text_bytes <= max_text_bytes
        if rows and not fits:
            yield _Span(row, rows, first, index, 0)
            row, rows, text_bytes = row + rows, 0, 0
        if not rows:
            first = index
        pieces = max(_ceil(group.rows, shard_rows), _ceil(group.text_bytes, max_text_bytes))
        if group.rows and pieces > 1:
            yield from _cut_group(row, index, group.rows, min(pieces, group.rows))
            row += group.rows
        else:
            rows, text_bytes = rows + group.rows, text_bytes + group.text_bytes
    if rows:
        yield _Span(row, rows, first, len(file.groups), 0)


def _cut_group(row: int, index: int, rows: int, pieces: int) -> Iterator[_Span]:
    edges = [rows * piece // pieces for piece in range(pieces + 1)]
    for start, stop in itertools.pairwise(edges):
        yield _Span(row + start, stop - start, index, index + 1, start)


def _ceil(amount: int, size: int) -> int:
    return -(-amount // size)


def _shard(position: int, file: str, span: _Span) -> Shard:
    identity = f"{file}\0{span.row_start}\0{span.rows}".encode()
    digest = blake2b(identity, digest_size=4).hexdigest()
    return Shard(shard_id=f"{position:06d}-{digest}", file=file, **asdict(span))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run has to do, settled when its directory was begun."""

    shards: tuple[Shard, ...]
    fingerprint: dict[str, Any]
    repeated_ids: int | None
    """Rows of the input whose id an earlier row has; `None` if that was not counted."""


def save_plan(folder: Folder, plan: Plan) -> None:
    """Write the plan in one atomic step: from here the run exists."""
    table = pa.Table.from_pylist([asdict(shard) for shard in plan.shards], schema=_SCHEMA)
    header = {"fingerprint": plan.fingerprint, "repeated_ids": plan.repeated_ids}
    metadata = {_METADATA_KEY: json.dumps(header, sort_keys=True).encode()}
    buffer = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata), buffer)
    folder.put(PLAN_NAME, buffer.getvalue())


def load_plan(folder: Folder) -> Plan:
    """The saved plan.

    Raises:
        RunConflict: `plan.parquet` is not one of raydiff's.
    """
    try:
        table = pq.read_table(pa.BufferReader(folder.read(PLAN_NAME)))
        header = json.loads((table.schema.metadata or {})[_METADATA_KEY])
        shards = tuple(Shard(**row) for row in table.to_pylist())
        return Plan(shards=shards, **header)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        message = f"output: {folder.path(PLAN_NAME)} is not a raydiff plan: {error}."
        raise RunConflict(message, "output") from error
