"""The plan of a run: every input row in exactly one shard, decided once and saved.

`plan.parquet` has one row per span and the run's settings in its metadata, `files.parquet` one
row per input file. The second is written first and may have rows of an append that came to
nothing; `plan.parquet` says how many of them count, so that a plan is saved in one atomic step.
"""

from __future__ import annotations

import json
from array import array
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.corpus.files import FILES_SCHEMA, Files
from raydiff.corpus.plan import FileFacts, Shard, position_of
from raydiff.corpus.shards import NUMBERS, ShardColumns, Shards
from raydiff.errors import RunConflict
from raydiff.storage import Folder

PLAN_NAME = "plan.parquet"
FILES_NAME = "files.parquet"
FORMAT = 2
"""Of saved plans; another is refused."""

_METADATA_KEY = b"raydiff.plan"
_BATCH_ROWS = 65536
_RECENT_FILES = 65536
"""Files whose index the builder remembers: those that shards still to come may have rows of."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run has to do, settled when its directory was begun or appended to."""

    shards: Shards
    files: Files
    fingerprint: dict[str, Any]
    repeated_ids: int | None
    """Rows of the input whose id an earlier row has; `None` if that was not counted."""
    layout: dict[str, Any] = field(default_factory=dict)
    """Format, columns and types of the input, as JSON values."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the start that made the plan, as JSON values."""
    decoding: dict[str, Any] = field(default_factory=dict)
    """Resolved for the model, as JSON values."""
    appends: tuple[dict[str, Any], ...] = ()
    """When files were added, and how many files, shards and rows each time."""

    @property
    def rows(self) -> int:
        """Rows of the input."""
        return self.shards.rows


class PlanBuilder:
    """Takes files and shards one by one, as a pass over the input gives them, into columns."""

    def __init__(self, before: Plan | None = None) -> None:
        """`before` is the plan that is added to."""
        self._before = before
        self._known: OrderedDict[str, int] = OrderedDict()
        self._next_file = len(before.files) if before else 0
        self._file = array("i")
        self._numbers = {name: array("q") for name in NUMBERS}
        self._starts = array("q", [0])
        self._digest = array("I")
        self._facts: list[FileFacts] = []
        self._order = array("q")
        self._batches: list[pa.RecordBatch] = []

    def add_all(self, items: Iterable[FileFacts | Shard]) -> PlanBuilder:
        """Take what a pass over the input gives, in its order."""
        for item in items:
            if isinstance(item, Shard):
                self._add_shard(item)
            else:
                self._add_file(item)
        return self

    def _add_shard(self, shard: Shard) -> None:
        planned = len(self._digest) + (len(self._before.shards) if self._before else 0)
        assert position_of(shard.shard_id) == planned, (shard, planned)
        for span in shard.spans:
            self._file.append(self._index(span.file))
            for name, column in self._numbers.items():
                column.append(getattr(span, name))
        self._starts.append(len(self._file))
        self._digest.append(int(shard.shard_id.rpartition("-")[2], 16))

    def _add_file(self, facts: FileFacts) -> None:
        self._order.append(self._index(facts.name))
        self._facts.append(facts)
        if len(self._facts) == _BATCH_ROWS:
            self._batch_facts()

    def _batch_facts(self) -> None:
        self._batches += Files.of(self._facts).table.to_batches()
        self._facts = []

    def _index(self, name: str) -> int:
        index = self._known.get(name)
        if index is None:
            index, self._next_file = self._next_file, self._next_file + 1
            self._known[name] = index
            if len(self._known) > _RECENT_FILES:
                self._known.popitem(last=False)
        return index

    def files(self) -> Files:
        """All files, those of the plan before among them."""
        self._batch_facts()
        assert len(self._order) == sum(batch.num_rows for batch in self._batches)
        table = pa.Table.from_batches(self._batches, schema=FILES_SCHEMA)
        table = table.take(np.argsort(_numpy(self._order), kind="stable"))
        return Files(pa.concat_tables([self._before.files.table, table]) if self._before else table)

    def shards(self, files: Files) -> Shards:
        """All shards, those of the plan before first."""
        file = _numpy(self._file)
        numbers = {name: _numpy(column) for name, column in self._numbers.items()}
        starts, digest = _numpy(self._starts), _numpy(self._digest)
        if self._before:
            old = self._before.shards.columns
            file = np.concatenate([old.file, file])
            numbers = {n: np.concatenate([old.numbers[n], numbers[n]]) for n in numbers}
            starts = np.concatenate([old.starts[:-1], starts + old.starts[-1]])
            digest = np.concatenate([old.digest, digest])
        return Shards.all(
            ShardColumns.of(
                names=files.names, file=file, numbers=numbers, starts=starts, digest=digest
            )
        )


def _numpy(values: array[int]) -> Any:
    return np.frombuffer(values, dtype=values.typecode) if values else np.array([], values.typecode)


def save_plan(folder: Folder, plan: Plan) -> None:
    """Write the plan; the last of two writes is atomic, and from there the run exists."""
    folder.put(FILES_NAME, _parquet(plan.files.table))
    header = {
        "format": FORMAT,
        "files": len(plan.files),
        "fingerprint": plan.fingerprint,
        "repeated_ids": plan.repeated_ids,
        "layout": plan.layout,
        "settings": plan.settings,
        "decoding": plan.decoding,
        "appends": list(plan.appends),
    }
    metadata = {_METADATA_KEY: json.dumps(header, sort_keys=True).encode()}
    folder.put(PLAN_NAME, _parquet(_spans(plan.shards.columns).replace_schema_metadata(metadata)))


def is_half_a_plan(folder: Folder, name: str) -> bool:
    """Whether a file is what `save_plan` leaves behind when it is killed between its writes."""
    if name != FILES_NAME:
        return False
    try:
        with folder.open(name) as stream:
            return bool(pq.read_schema(stream).names == FILES_SCHEMA.names)
    except (OSError, pa.ArrowException):
        return False


def save_files(folder: Folder, files: Files) -> None:
    """Write the files' table alone: versions of files that were copied or touched."""
    folder.put(FILES_NAME, _parquet(files.table))


def _spans(columns: ShardColumns) -> pa.Table:
    shards = np.arange(columns.digest.size, dtype=np.int32)
    spans = np.diff(columns.starts)
    table: dict[str, Any] = {
        "shard": np.repeat(shards, spans),
        "digest": np.repeat(columns.digest, spans),
        "file": columns.file,
        **columns.numbers,
    }
    table = {name: np.ascontiguousarray(column) for name, column in table.items()}
    return pa.table(table)


def _parquet(table: pa.Table) -> pa.Buffer:
    """Numbers as differences, text with a dictionary: what follows from the last row is free."""
    sink = pa.BufferOutputStream()
    numbers = [f.name for f in table.schema if pa.types.is_integer(f.type) and f.name != "digest"]
    encodings = dict.fromkeys(numbers, "DELTA_BINARY_PACKED")
    for field_ in table.schema:
        if pa.types.is_large_string(field_.type):
            encodings[field_.name] = "DELTA_BYTE_ARRAY"
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=False,
        column_encoding=encodings or None,
        write_statistics=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


def load_plan(folder: Folder) -> Plan:
    """The saved plan.

    Raises:
        RunConflict: `plan.parquet` is not one of this version's.
    """
    try:
        table = _read(folder, PLAN_NAME)
        header = json.loads((table.schema.metadata or {})[_METADATA_KEY])
        if header.pop("format", 1) != FORMAT:
            raise RunConflict(
                f"output: {folder.path(PLAN_NAME)} was written by another version of raydiff. "
                "Finish the run with that version, or choose another output directory.",
                "output",
            )
        files = _load_files(folder, header.pop("files"))
        header["appends"] = tuple(header["appends"])
        return Plan(shards=_load_shards(table, files), files=files, **header)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        message = f"output: {folder.path(PLAN_NAME)} is not a raydiff plan: {error}."
        raise RunConflict(message, "output") from error


def _read(folder: Folder, name: str) -> pa.Table:
    content = pa.BufferReader(folder.read(name))
    return pq.read_table(content, page_checksum_verification=True)


def _load_files(folder: Folder, count: int) -> Files:
    table = _read(folder, FILES_NAME).slice(0, count)
    if table.num_rows != count:
        raise ValueError(f"{FILES_NAME} has {table.num_rows} files, expected {count}")
    return Files(table.cast(FILES_SCHEMA))


def _load_shards(table: pa.Table, files: Files) -> Shards:
    shard = table["shard"].to_numpy()
    firsts = np.flatnonzero(np.diff(shard, prepend=-1))
    return Shards.all(
        ShardColumns.of(
            names=files.names,
            file=table["file"].to_numpy(),
            numbers={name: table[name].to_numpy() for name in NUMBERS},
            starts=np.append(firsts, table.num_rows),
            digest=table["digest"].to_numpy()[firsts],
        )
    )
