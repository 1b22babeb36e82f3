"""What a plan is made of: files, and shards of their rows.

A shard has rows of one file, a run of whole row groups or of rows inside a large one, or the
rows of several small files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """An input file as it was when it was planned."""

    name: str
    """Path relative to the input directory: the file's identity in ids, seeds and outputs."""
    size_bytes: int
    version: str
    """As the store's listing gave it; it changes when the file is written again or copied."""
    rows: int
    digest: str
    """Of what tells the file from another of its size, such as its footer."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """Consecutive rows of one file."""

    file: str
    row_start: int
    """Index in the file of the first row."""
    rows: int
    first_group: int = 0
    """First row group that holds a row of the span; of Parquet."""
    stop_group: int = 0
    """One past the last such row group."""
    skip_rows: int = 0
    """Rows of the first row group that come before the span."""
    offset: int = 0
    """Byte of the (decompressed) file at which the first row begins; of text formats."""
    line: int = 0
    """Line of the file at which the first row begins, from 1; of text formats."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The unit of scheduling, of commit and of resume. Its documents are known by their index in
    it, from 0; `place` tells where that is in the input."""

    shard_id: str
    """Position in the plan and a hash of files and rows: stable, unique, sorted like the plan."""
    spans: tuple[Span, ...]

    @property
    def rows(self) -> int:
        return sum(span.rows for span in self.spans)

    def place(self, index: int) -> tuple[str, int]:
        """File and row index in it of the document at `index`: its identity."""
        for span in self.spans:
            if index < span.rows:
                return span.file, span.row_start + index
            index -= span.rows
        raise IndexError(index)

    @property
    def position(self) -> int:
        """Index in the plan."""
        return position_of(self.shard_id)

    def places(self) -> Iterator[tuple[str, int]]:
        """File and row index of each document, in order."""
        for span in self.spans:
            for row in range(span.row_start, span.row_start + span.rows):
                yield span.file, row


def shard_digest(spans: Sequence[Span]) -> int:
    """A hash of which rows of which files the spans are; 32 bits."""
    identity = "\0".join(f"{span.file}\0{span.row_start}\0{span.rows}" for span in spans)
    return int.from_bytes(blake2b(identity.encode(), digest_size=4).digest(), "big")


def shard_id(position: int, digest: int) -> str:
    """The id of the shard at a position of the plan. Ids sort like positions below 10^8."""
    return f"{position:08d}-{digest:08x}"


def position_of(shard_id: str) -> int:
    """The position in the plan that a shard's id states."""
    return int(shard_id.partition("-")[0])


def make_shard(position: int, spans: tuple[Span, ...]) -> Shard:
    """The shard of these spans at a position of the plan."""
    return Shard(shard_id=shard_id(position, shard_digest(spans)), spans=spans)
