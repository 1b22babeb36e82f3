"""Which shards are committed, as one listing of file names tells it.

`part-SHARD-rROWS-eERRORS.parquet` is a committed shard. `part-FIRST-to-LAST-rROWS-eERRORS.parquet`
is what compaction made of the parts of consecutive shards: it stands for all shards of its range,
and parts of its range that are still there do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raydiff.corpus.plan import shard_id
from raydiff.corpus.planning import Plan
from raydiff.corpus.shards import Integers, Shards
from raydiff.errors import RunConflict
from raydiff.storage import Folder

ERRORS_FOLDER = "errors"
_LABEL = r"(?P<first>\d{8,})-(?:(?P<digest>[0-9a-f]{8})|to-(?P<last>\d{8,}))"
PART = rf"part-{_LABEL}-r(?P<rows>\d+)-e(?P<errors>\d+)\.parquet"
ERRORS = rf"{ERRORS_FOLDER}/errors-{_LABEL}-[0-9a-f]{{32}}\.parquet"
_BATCH = 65536


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part file, as its name states it."""

    first: int
    """Position in the plan of the first shard whose rows it has."""
    last: int
    """Position of the last one: `first`, unless the part was made by compaction."""
    digest: int | None
    """The shard's hash; `None` of a part made by compaction."""
    rows: int
    """Rows of the part file: documents with an answer."""
    errors: int
    """Failed documents: rows of the errors file that its metadata names."""

    @property
    def label(self) -> str:
        """The shard or the range of shards, as names of files have it."""
        return range_label(self.first, self.last, self.digest)

    @property
    def name(self) -> str:
        """Its file's name."""
        return f"part-{self.label}-r{self.rows}-e{self.errors}.parquet"

    @property
    def shards(self) -> int:
        """How many shards it has."""
        return self.last - self.first + 1

    @classmethod
    def parse(cls, name: str) -> Part | None:
        """The part that a file name states, or `None` if it is no part's name."""
        match = re.fullmatch(PART, name)
        if match is None:
            return None
        return cls(
            first=int(match["first"]),
            last=int(match["last"] or match["first"]),
            digest=int(match["digest"], 16) if match["digest"] else None,
            rows=int(match["rows"]),
            errors=int(match["errors"]),
        )


def range_label(first: int, last: int, digest: int | None) -> str:
    """`SHARD` of one shard, `FIRST-to-LAST` of several."""
    return f"{first:08d}-to-{last:08d}" if digest is None else shard_id(first, digest)


class Committed:
    """The parts of a run that count, in the order of the plan, as columns: some 40 bytes each."""

    def __init__(self, plan: Plan, table: dict[str, Integers]) -> None:
        """`table` has the columns first, last, merged, rows, errors and size_bytes."""
        self._plan = plan
        self.table = table
        steps = np.zeros(len(plan.shards) + 1, np.int32)
        np.add.at(steps, table["first"], 1)
        np.add.at(steps, table["last"] + 1, -1)
        self.done: Integers = np.cumsum(steps[:-1]) > 0
        """By position: whether the shard is committed."""

    @property
    def shards(self) -> int:
        """Committed shards."""
        return int(self.done.sum())

    @property
    def rows(self) -> int:
        """Documents with an answer."""
        return int(self.table["rows"].sum())

    @property
    def failed(self) -> int:
        """Failed documents."""
        return int(self.table["errors"].sum())

    @property
    def documents(self) -> int:
        """Documents done, well or not."""
        return self.rows + self.failed

    @property
    def size_bytes(self) -> int:
        """Size of the part files."""
        return int(self.table["size_bytes"].sum())

    @property
    def pending(self) -> Shards:
        """Shards that are not committed, in the order of the plan."""
        return Shards(self._plan.shards.columns, np.flatnonzero(~self.done))

    def __len__(self) -> int:
        """How many part files."""
        return len(self.table["first"])

    def __iter__(self) -> Iterator[Part]:
        return (self.part(index) for index in range(len(self)))

    def part(self, index: int) -> Part:
        """The part at an index in the order of the plan."""
        return part_of(self._plan, {name: column[index] for name, column in self.table.items()})


def part_of(plan: Plan, row: dict[str, Any]) -> Part:
    """A part of a plan from one row of the columns of `Committed`."""
    first = int(row["first"])
    return Part(
        first=first,
        last=int(row["last"]),
        digest=None if row["merged"] else int(plan.shards.columns.digest[first]),
        rows=int(row["rows"]),
        errors=int(row["errors"]),
    )


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What one listing of the run directory says of its parts."""

    committed: Committed
    superseded: tuple[str, ...]
    """Parts whose shards another part has: second attempts, and sources of compaction."""
    foreign: tuple[str, ...]
    """Parts that this plan cannot have."""
    others: tuple[str, ...]
    """Names of all other files."""


def list_parts(folder: Folder, plan: Plan) -> Listing:
    """List the run directory once and sort its parts out; nothing is opened or deleted.

    Of two parts of the same shards the one with fewer errors counts.
    """
    columns: list[dict[str, Integers]] = []
    foreign: list[str] = []
    others: list[str] = []
    names: list[str] = []
    sizes: list[int] = []
    for entry in folder.entries():
        names.append(entry.name)
        sizes.append(entry.size_bytes)
        if len(names) == _BATCH:
            columns.append(_sort_batch(plan, names, sizes, foreign, others))
            names, sizes = [], []
    columns.append(_sort_batch(plan, names, sizes, foreign, others))
    table = {key: np.concatenate([c[key] for c in columns]) for key in columns[0]}
    kept, superseded, conflicting = _resolve(table)
    foreign += _names(plan, table, conflicting)
    return Listing(
        committed=Committed(plan, {key: column[kept] for key, column in table.items()}),
        superseded=tuple(_names(plan, table, superseded)),
        foreign=tuple(sorted(foreign)),
        others=tuple(sorted(others)),
    )


def _names(plan: Plan, table: dict[str, Integers], indices: Integers) -> list[str]:
    rows = ({key: column[index] for key, column in table.items()} for index in indices)
    return [part_of(plan, row).name for row in rows]


def _sort_batch(
    plan: Plan, names: list[str], sizes: list[int], foreign: list[str], others: list[str]
) -> dict[str, Integers]:
    """Columns of the parts among some files; the other names go to `foreign` and `others`."""
    array: Any = pa.array(names, pa.string())
    found: Any = pc.extract_regex(array, pattern=f"^{PART}$")
    is_part = found.is_valid().to_numpy(zero_copy_only=False)
    others += array.filter(pa.array(~is_part)).to_pylist()
    array, found = array.filter(pa.array(is_part)), found.drop_null()
    fields = {name: found.field(index) for index, name in enumerate(found.type.names)}
    merged = pc.utf8_length(fields["last"]).to_numpy(zero_copy_only=False) > 0
    last = pc.if_else(pa.array(merged), fields["last"], fields["first"])
    table = {
        "first": fields["first"].cast(pa.int64()).to_numpy(),
        "last": last.cast(pa.int64()).to_numpy(),
        "merged": merged,
        "rows": fields["rows"].cast(pa.int64()).to_numpy(),
        "errors": fields["errors"].cast(pa.int64()).to_numpy(),
        "size_bytes": np.array(sizes, np.int64)[is_part],
    }
    good = _belongs(plan, table, _digests(fields["digest"], merged))
    foreign += array.filter(pa.array(~good)).to_pylist()
    narrow = {
        key: np.int32 if key in ("first", "last") else column.dtype for key, column in table.items()
    }
    return {key: column[good].astype(narrow[key]) for key, column in table.items()}


def _digests(texts: Any, merged: Integers) -> Integers:
    """Eight hexadecimal digits each, as numbers; zero where there are none."""
    digits = pc.if_else(pa.array(merged), "00000000", texts)
    raw = b"".join(digits.cast(pa.binary()).to_pylist())
    return np.frombuffer(bytes.fromhex(raw.decode()), dtype=">u4").astype(np.uint32)


def _belongs(plan: Plan, table: dict[str, Integers], digests: Integers) -> Integers:
    """Whether a plan has the shards of a part, and as many rows in them."""
    columns, shards = plan.shards.columns, len(plan.shards)
    first, last = table["first"], table["last"]
    inside = (first <= last) & (last < shards)
    first, last = np.where(inside, first, 0), np.where(inside, last, 0)
    if not shards:
        return inside
    planned = columns.edges[last + 1] - columns.edges[first]
    same_digest = table["merged"] | (columns.digest[first] == digests)
    good: Integers = inside & same_digest & (planned == table["rows"] + table["errors"])
    return good


def _resolve(table: dict[str, Integers]) -> tuple[Integers, Integers, Integers]:
    """Indices of parts that count, of those that others cover, and of those that others cut."""
    order = np.lexsort((table["errors"], -table["last"], table["first"]))
    first, last = table["first"][order], table["last"][order]
    reach = np.concatenate([[-1], np.maximum.accumulate(last)[:-1]]) if last.size else last
    covered = last <= reach
    cut = ~covered & (first <= reach)
    return order[~covered & ~cut], order[covered], order[cut]


def settle_parts(folder: Folder, plan: Plan) -> Committed:
    """The parts that count; superseded ones and what killed writers left are deleted. Only names
    are read.

    Call it while no worker runs.

    Raises:
        RunConflict: there is a part that is none of this plan's.
    """
    listing = list_parts(folder, plan)
    require_own(folder, listing)
    folder.delete_many(listing.superseded)
    folder.remove_leftovers(listed=listing.others)
    return listing.committed


def require_own(folder: Folder, listing: Listing) -> None:
    """Refuse a directory with parts that its plan cannot have.

    Raises:
        RunConflict: there is one; the message names it.
    """
    if listing.foreign:
        path = folder.path(listing.foreign[0])
        raise RunConflict(f"output: {path} is not a part of this run's plan.", "output")
