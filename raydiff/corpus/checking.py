"""What is wrong with one part: its bytes, its counts, its columns, its rows, its errors file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raydiff.corpus.commit import checksum, details_of
from raydiff.corpus.ids import hash_ids
from raydiff.corpus.parts import Part
from raydiff.corpus.planning import Plan
from raydiff.corpus.shards import Integers
from raydiff.storage import Folder

_IDENTITY = ("source_file", "source_row")
_FILE_SHIFT = 2**42
"""More rows than any file has."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something wrong in a run directory."""

    kind: str
    """One word for it."""
    file: str
    """The file's name in the run directory."""
    message: str

    def to_dict(self) -> dict[str, str]:
        """As JSON values."""
        return {"kind": self.kind, "file": self.file, "message": self.message}


@dataclass(frozen=True, kw_only=True)
class CheckedPart:
    """What the check of a part found."""

    faults: tuple[Fault, ...]
    schema: pa.Schema | None
    """Columns of the part; `None` if it cannot be read."""
    ids: Integers
    """Hashes of the ids of its rows and of its failed documents."""


class PartChecker:
    """Checks the parts of a run one by one; safe to use from several threads."""

    def __init__(
        self, folder: Folder, plan: Plan, id_column: str | None, *, ledger_complete: bool
    ) -> None:
        """`id_column` is that of the output; `None` if ids were generated. The ledger is
        complete at the end of a run; before, the death of a driver may have cost it rows."""
        self._folder = folder
        self._plan = plan
        self._id = id_column
        self._ledger_complete = ledger_complete

    def check(self, part: Part, row: Mapping[str, Any] | None) -> CheckedPart:
        """Read the part and its errors file; `row` is the ledger's, if it has one."""
        faults: list[Fault] = []
        content = self._read(part.name, faults)
        table = None if content is None else self._table(part.name, content, faults)
        if content is None or table is None:
            return CheckedPart(faults=tuple(faults), schema=None, ids=np.array([], np.int64))
        if row is not None:
            _check_sum(part.name, content, row["part_checksum"], faults)
        elif self._ledger_complete:
            remedy = "`raydiff runs verify --rebuild-ledger` adds it"
            message = f"the ledger has no row of it; {remedy}"
            faults.append(Fault(kind="ledger", file=part.name, message=message))
        if table.num_rows != part.rows:
            message = f"it has {table.num_rows} rows, its name says {part.rows}"
            faults.append(Fault(kind="count", file=part.name, message=message))
        errors = self._errors(part, content, faults)
        tables = [table, *([errors] if errors is not None else [])]
        if errors is not None or not part.errors:
            self._check_rows(part, tables, faults)
        schema = pq.read_schema(pa.BufferReader(content)).remove_metadata()
        return CheckedPart(faults=tuple(faults), schema=schema, ids=self._hashes(tables))

    def _read(self, name: str, faults: list[Fault]) -> bytes | None:
        try:
            return self._folder.read(name)
        except FileNotFoundError:
            faults.append(Fault(kind="missing", file=name, message="it is not there"))
            return None

    def _table(self, name: str, content: bytes, faults: list[Fault]) -> pa.Table | None:
        """The columns that tell rows apart."""
        columns = [*_IDENTITY, *([self._id] if self._id else [])]
        try:
            file = pq.ParquetFile(pa.BufferReader(content))
            absent = [c for c in columns if c not in file.schema_arrow.names]
            if absent:
                message = f"it has no column {absent[0]!r}"
                faults.append(Fault(kind="columns", file=name, message=message))
                return None
            return file.read(columns=columns)
        except (pa.ArrowException, OSError) as error:
            message = f"it cannot be read as Parquet: {error}"
            faults.append(Fault(kind="unreadable", file=name, message=message))
            return None

    def _errors(self, part: Part, content: bytes, faults: list[Fault]) -> pa.Table | None:
        """Rows of the errors file that the part names, if it names one that can be read."""
        try:
            details = details_of(content)
        except ValueError as error:
            faults.append(Fault(kind="metadata", file=part.name, message=str(error)))
            return None
        name = details.errors_file
        if name is None:
            if part.errors:
                message = f"its name says {part.errors} errors, but it names no errors file"
                faults.append(Fault(kind="errors", file=part.name, message=message))
            return None
        errors_content = self._read(name, faults)
        if errors_content is None:
            return None
        _check_sum(name, errors_content, bytes.fromhex(details.errors_checksum), faults)
        table = self._table(name, errors_content, faults)
        if table is not None and table.num_rows != part.errors:
            message = f"it has {table.num_rows} rows, the name of {part.name} says {part.errors}"
            faults.append(Fault(kind="count", file=name, message=message))
        return table

    def _check_rows(self, part: Part, tables: list[pa.Table], faults: list[Fault]) -> None:
        """Check that the rows are those of the part's shards, each once."""
        names, expected = self._expected(part)
        file = np.concatenate([_indices(table["source_file"], names) for table in tables])
        row = np.concatenate([table["source_row"].to_numpy() for table in tables])
        found = np.sort(np.where(file < 0, -1, file * _FILE_SHIFT + row))
        repeated = int((np.diff(found) == 0).sum()) if found.size else 0
        foreign = int((~np.isin(found, expected)).sum())
        lost = int((~np.isin(expected, found)).sum())
        for count, what in (
            (repeated, "rows (source_file, source_row) are there more than once"),
            (foreign, "rows belong to other shards"),
            (lost, "rows are missing"),
        ):
            if count:
                faults.append(Fault(kind="rows", file=part.name, message=f"{count} {what}"))

    def _expected(self, part: Part) -> tuple[pa.Array[Any], Integers]:
        """Names of the part's input files, and its rows as numbers, sorted."""
        columns = self._plan.shards.columns
        spans = slice(int(columns.starts[part.first]), int(columns.starts[part.last + 1]))
        files, local = np.unique(columns.file[spans], return_inverse=True)
        rows = columns.numbers["rows"][spans].astype(np.int64)
        begins = local * _FILE_SHIFT + columns.numbers["row_start"][spans]
        before = np.cumsum(rows) - rows
        places = np.repeat(begins - before, rows) + np.arange(rows.sum())
        return columns.names.take(pa.array(files)), np.sort(places)

    def _hashes(self, tables: list[pa.Table]) -> Integers:
        if self._id is None:
            return np.array([], np.int64)
        return np.concatenate(
            [np.array([], np.int64)]
            + [hash_ids(chunk) for table in tables for chunk in table[self._id].chunks]
        )


def _indices(column: Any, names: pa.Array[Any]) -> Integers:
    found = pc.index_in(column.cast(names.type), value_set=names)
    indices: Integers = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return indices


def _check_sum(name: str, content: bytes, expected: bytes | None, faults: list[Fault]) -> None:
    if expected is not None and checksum(content) != expected.hex():
        message = f"its checksum is {checksum(content)}, expected {expected.hex()}"
        faults.append(Fault(kind="checksum", file=name, message=message))
