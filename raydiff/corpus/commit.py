"""Commit records: one part file per shard, whose name says what it holds.

The errors file is written first, under a name of this attempt only; then the part file in one
atomic step. A shard is committed when its part file is there. Execution is at least once, so two
attempts may both get here: with equal counts the second replaces the first, otherwise
`settle_parts` keeps one.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.corpus.plan import Shard
from raydiff.corpus.storage import Folder

ERRORS_FOLDER = "errors"
_PART = re.compile(r"part-(?P<shard>\d{6,}-[0-9a-f]{8})-r(?P<rows>\d+)-e(?P<errors>\d+)\.parquet")
_ERRORS = re.compile(r"errors/errors-(?P<shard>\d{6,}-[0-9a-f]{8})-[0-9a-f]{32}\.parquet")
_METADATA_KEY = b"raydiff.part"


@dataclass(frozen=True)
class Part:
    """A committed shard, as its file name states it."""

    shard_id: str
    rows: int
    """Summarised documents: rows of the part file."""
    errors: int
    """Failed documents: rows of the errors file that its metadata names."""

    @property
    def name(self) -> str:
        return f"part-{self.shard_id}-r{self.rows}-e{self.errors}.parquet"

    @classmethod
    def parse(cls, name: str) -> Part | None:
        """The part that a file name states, or `None` if it is no part's name."""
        match = _PART.fullmatch(name)
        if match is None:
            return None
        return cls(match["shard"], int(match["rows"]), int(match["errors"]))


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What the documents of a shard, or of a run, cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    forwards: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            forwards=self.forwards + other.forwards,
        )


@dataclass(frozen=True, kw_only=True)
class PartDetails:
    """What a part file's metadata adds to its name."""

    errors_file: str | None
    totals: Totals
    error_types: dict[str, int]
    """Failed documents by type of error."""


def commit_shard(
    folder: Folder, shard: Shard, summaries: pa.Table, errors: pa.Table, totals: Totals
) -> Part:
    """Make a shard's result durable and visible, both or neither."""
    assert summaries.num_rows + errors.num_rows == shard.rows, shard
    errors_file = None
    if errors.num_rows:
        errors_file = f"{ERRORS_FOLDER}/errors-{shard.shard_id}-{uuid.uuid4().hex}.parquet"
        folder.put(errors_file, _parquet(errors))
    part = Part(shard.shard_id, summaries.num_rows, errors.num_rows)
    details = PartDetails(
        errors_file=errors_file, totals=totals, error_types=count_error_types(errors)
    )
    metadata = {_METADATA_KEY: json.dumps(asdict(details)).encode()}
    folder.put(part.name, _parquet(summaries.replace_schema_metadata(metadata)))
    return part


def count_error_types(errors: pa.Table) -> dict[str, int]:
    """Rows of an errors table by `error_type`."""
    return dict(Counter(str(name) for name in errors.column("error_type").to_pylist()))


def _parquet(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def read_details(folder: Folder, part: Part) -> PartDetails:
    """Read a part's metadata; its rows stay unread."""
    with folder.open(part.name) as stream:
        metadata = pq.read_metadata(stream).metadata or {}
    details = json.loads(metadata[_METADATA_KEY])
    return PartDetails(**{**details, "totals": Totals(**details["totals"])})


def settle_parts(folder: Folder) -> dict[str, Part]:
    """Committed parts by shard id; where a shard has several, one is kept, the rest deleted.

    Only file names are read. Call it while no worker runs.
    """
    kept: dict[str, Part] = {}
    for part in sorted(_parts(folder), key=lambda p: (p.shard_id, p.errors, p.name)):
        if part.shard_id in kept:
            folder.delete(part.name)
        else:
            kept[part.shard_id] = part
    return kept


def _parts(folder: Folder) -> Iterable[Part]:
    return (part for name in folder.names() if (part := Part.parse(name)) is not None)


def remove_unnamed_errors(folder: Folder, parts: dict[str, Part]) -> int:
    """Delete errors files that no committed part names; returns how many.

    A part is opened only where its shard has several errors files.
    """
    by_shard: dict[str, list[str]] = {}
    for name in folder.names(ERRORS_FOLDER):
        if match := _ERRORS.fullmatch(name):
            by_shard.setdefault(match["shard"], []).append(name)
    removed = 0
    for shard_id, names in by_shard.items():
        for name in set(names) - _named(folder, parts.get(shard_id), names):
            folder.delete(name)
            removed += 1
    return removed


def _named(folder: Folder, part: Part | None, names: list[str]) -> set[str]:
    if part is None or not part.errors:
        return set()
    if len(names) == 1:
        return set(names)
    return {read_details(folder, part).errors_file or ""}
