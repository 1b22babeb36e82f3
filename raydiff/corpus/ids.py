"""How many rows repeat an id that an earlier row has, in bounded memory.

Ids are known by 64 bits each: Python's hash, or the number itself. Beyond `IN_MEMORY` of them they
are kept in a temporary directory, split by their value, so that equal ones meet in one file. Two
of a hundred million ids have the same hash with a chance below one in three thousand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from raydiff.corpus.files import Files
from raydiff.corpus.inputs import Inputs
from raydiff.corpus.reading.column import iter_column
from raydiff.corpus.shards import Integers

COUNTED_BYTES = 2**28
COUNTED_ROWS = 2**22
"""A run begins without a count over an input that is larger: `raydiff runs verify` counts then."""
IN_MEMORY = 2**23
"""Ids held at a time: 64 MiB."""
SPLITS = 64
_MIX = np.uint64(0x9E3779B97F4A7C15)


def count_repeated_ids(inputs: Inputs, files: Files) -> int | None:
    """Rows whose id an earlier row has too; nulls do not count. Reads the id column only.

    `None` when that would take long, or an id is no column of a file.
    """
    column = inputs.columns.id
    if column is None:
        return 0
    if files.size_bytes > COUNTED_BYTES or files.rows > COUNTED_ROWS:
        return None
    if column in inputs.layout.partitions.names:
        return None
    with RepeatedIds() as repeated:
        for file in files:
            for values in iter_column(inputs.folder, inputs.layout, file.name, column):
                for chunk in values.chunks:
                    repeated.add(hash_ids(chunk))
        return repeated.count()


class RepeatedIds:
    """Takes ids as they come and counts those that are not the first of their kind."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._held: list[Integers] = []
        self._held_ids = 0
        self._files: list[BinaryIO] = []
        self._stack = ExitStack()

    def __enter__(self) -> RepeatedIds:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def add(self, hashes: Integers) -> None:
        """Take ids as `hash_ids` gives them."""
        self._held.append(hashes)
        self._held_ids += hashes.size
        if self._held_ids >= self._in_memory:
            self._spill()

    def count(self) -> int:
        """Ids that came before."""
        if not self._files:
            return _repeats(np.concatenate([np.array([], np.int64), *self._held]))
        if self._held:
            self._spill()
        total = 0
        for file in self._files:
            file.flush()
            file.seek(0)
            total += _repeats(np.frombuffer(file.read(), np.int64))
        return total

    def _spill(self) -> None:
        if not self._files:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="raydiff-ids-"))
            self._files = [
                self._stack.enter_context((Path(folder) / str(i)).open("w+b"))
                for i in range(SPLITS)
            ]
        ids = np.concatenate(self._held)
        split = (ids.view(np.uint64) * _MIX) >> np.uint64(58)
        order = np.argsort(split, kind="stable")
        edges = np.searchsorted(split[order], np.arange(SPLITS + 1))
        for index, file in enumerate(self._files):
            file.write(ids[order[edges[index] : edges[index + 1]]].tobytes())
        self._held, self._held_ids = [], 0


def _repeats(ids: Integers) -> int:
    return int(ids.size - np.unique(ids).size)


def hash_ids(ids: Any) -> Integers:
    """64 bits for each id of an Arrow array; nulls are left out, for they are no ids."""
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    ids = ids.drop_null()
    kind = ids.type
    if pa.types.is_null(kind):
        return np.array([], np.int64)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        signed = ids.cast(pa.int64()) if kind != pa.uint64() else ids
        return np.asarray(signed.to_numpy(zero_copy_only=False)).astype(np.int64)
    return np.fromiter((hash(value) for value in _values(ids)), np.int64, len(ids))


def _values(ids: Any) -> Iterable[object]:
    for value in ids.to_pylist():
        # -1 and -2 have one hash, in tuples too; lists and dicts have none.
        yield value if isinstance(value, str | bytes) else repr(value)
