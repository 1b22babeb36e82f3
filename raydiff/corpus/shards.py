"""All shards of a plan as columns of numbers: about sixty bytes a shard, and no object until one
is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raydiff.corpus.plan import Shard, Span, shard_id

Integers = npt.NDArray[Any]

NUMBERS = {
    name: np.int32 if name in ("rows", "first_group", "stop_group") else np.int64
    for name in (field.name for field in fields(Span))
    if name != "file"
}
"""Columns of a span beside its file; one file may have more rows than 2^31, one span may not."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardColumns:
    """The spans of all shards, in the order of the plan, and where each shard begins among them."""

    names: pa.Array[Any]
    """Names of the input files."""
    file: Integers
    """Index in `names`, by span."""
    numbers: dict[str, Integers]
    """The other fields of spans."""
    starts: Integers
    """First span of each shard, and at the end the number of spans."""
    digest: Integers
    """Hash of each shard's files and rows."""
    edges: Integers
    """Rows of the plan before each shard, and at the end all."""

    @classmethod
    def of(
        cls,
        names: pa.Array[Any],
        file: Integers,
        numbers: dict[str, Integers],
        starts: Integers,
        digest: Integers,
    ) -> ShardColumns:
        """Columns with their constant ones shrunk to a value."""
        spans = np.concatenate([[0], np.cumsum(numbers["rows"], dtype=np.int64)])
        return cls(
            names=names,
            file=shrink(file.astype(np.int32, copy=False)),
            numbers={
                name: shrink(numbers[name].astype(NUMBERS[name], copy=False)) for name in NUMBERS
            },
            starts=starts.astype(np.int32, copy=False),
            digest=digest.astype(np.uint32, copy=False),
            edges=spans[starts],
        )

    @property
    def nbytes(self) -> int:
        """Memory of the columns, without the names of files."""
        columns = (self.file, *self.numbers.values(), self.starts, self.digest, self.edges)
        return sum(
            column.size * column.itemsize if column.strides != (0,) else column.itemsize
            for column in columns
        )

    def shard_id(self, position: int) -> str:
        """The id of the shard at a position."""
        return shard_id(position, int(self.digest[position]))

    def shard(self, position: int) -> Shard:
        """The shard at a position."""
        spans = range(int(self.starts[position]), int(self.starts[position + 1]))
        return Shard(
            shard_id=self.shard_id(position), spans=tuple(self._span(index) for index in spans)
        )

    def _span(self, index: int) -> Span:
        numbers = {name: int(column[index]) for name, column in self.numbers.items()}
        return Span(file=self.names[int(self.file[index])].as_py(), **numbers)


def shrink(column: Integers) -> Integers:
    """A column of one value takes the memory of one value."""
    if column.size and (column == column[0]).all():
        return np.broadcast_to(column[:1].copy(), column.shape)
    return column


class Shards(Sequence[Shard]):
    """Shards at some positions of a plan, made when they are asked for."""

    def __init__(self, columns: ShardColumns, positions: Integers | range) -> None:
        self.columns = columns
        self.positions = positions

    @classmethod
    def all(cls, columns: ShardColumns) -> Shards:
        """Every shard of the plan."""
        return cls(columns, range(columns.digest.size))

    @property
    def rows(self) -> int:
        """Rows of these shards."""
        if isinstance(self.positions, range):
            return (
                int(
                    self.columns.edges[self.positions.stop]
                    - self.columns.edges[self.positions.start]
                )
                if len(self.positions)
                else 0
            )
        return int(
            (self.columns.edges[self.positions + 1] - self.columns.edges[self.positions]).sum()
        )

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Shard]:
        return (self.columns.shard(int(position)) for position in self.positions)

    @overload
    def __getitem__(self, index: int) -> Shard: ...
    @overload
    def __getitem__(self, index: slice) -> Shards: ...
    def __getitem__(self, index: int | slice) -> Shard | Shards:
        if isinstance(index, slice):
            return Shards(self.columns, self.positions[index])
        return self.columns.shard(int(self.positions[index]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} shards, {self.rows} rows>"
