"""What planning learns of a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

SAMPLE_FILES = 16


@dataclass(frozen=True)
class Sample:
    """What the first files of an input tell of all."""

    path: str
    """A file that has these columns, for messages."""
    columns: list[str]
    """Every name that a column can be called by; empty if the files are."""
    types: dict[str, pa.DataType]
    """Types in the output of those carried columns that are in the files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowGroup:
    """Rows of a file that are next to each other: a row group of Parquet, or a block of records
    that is small enough for a shard."""

    rows: int
    text_bytes: int
    """Uncompressed bytes of the text column; of text formats those of whole records."""
    offset: int = 0
    """Byte at which the block begins, in the decompressed file; of text formats."""
    line: int = 0
    """Line at which it begins, from 1; of text formats."""


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One input file."""

    name: str
    """Path relative to the input directory: the file's identity in ids, seeds and outputs."""
    size_bytes: int
    version: str
    """As the listing has it."""
    digest: str
    groups: Iterable[RowGroup]
    """Can be gone through once: those of a large text file are found on the way."""
