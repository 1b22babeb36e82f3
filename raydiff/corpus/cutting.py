"""Cuts files into shards: whole small files together, large ones by row groups or rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from raydiff.corpus.inputs import InputFile, Inputs, RowGroup, describe_files
from raydiff.corpus.plan import FileFacts, Shard, Span, make_shard
from raydiff.storage import Entry

MAX_SHARD_TEXT_BYTES = 8 * 2**20
"""A shard's text and tokens (about ten times its bytes) are in memory at once, so large documents
make shards of fewer rows."""

MAX_SHARD_FILES = 64
"""Opening a file takes several requests to a store, one after the other."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one shard may have."""

    rows: int
    text_bytes: int = MAX_SHARD_TEXT_BYTES
    """One document may have more."""
    files: int = MAX_SHARD_FILES


def plan_items(
    inputs: Inputs, entries: Iterable[Entry], shard_rows: int, first_position: int = 0
) -> Iterator[FileFacts | Shard]:
    """Go through files once: the shards of their rows in order, and what is to be kept of each
    file. A file's facts come before the last shard that has rows of it.

    The same files give the same shards. Memory does not grow with their number.

    Args:
        first_position: position in the plan of the first shard.

    Raises:
        InputError: a file cannot be read, or has not the columns of the others.
    """
    limits = Limits(rows=shard_rows)
    files = describe_files(inputs, entries, limits.rows, limits.text_bytes)
    return cut_files(files, limits, first_position)


def cut_files(
    files: Iterable[InputFile], limits: Limits, first_position: int = 0
) -> Iterator[FileFacts | Shard]:
    """Cut described files, as `plan_items` does."""
    positions = itertools.count(first_position)
    together = _Together(limits)
    for file in files:
        rows = 0
        for piece in _pieces(file, limits):
            rows += piece.span.rows
            if not together.has_room_for(piece):
                yield make_shard(next(positions), together.take())
            together.add(piece)
        yield FileFacts(
            name=file.name,
            size_bytes=file.size_bytes,
            version=file.version,
            rows=rows,
            digest=file.digest,
        )
    if together.rows:
        yield make_shard(next(positions), together.take())


@dataclass(frozen=True)
class _Piece:
    span: Span
    text_bytes: int


@dataclass
class _Together:
    """Pieces that become one shard."""

    limits: Limits
    spans: list[Span] = field(default_factory=list)
    rows: int = 0
    text_bytes: int = 0

    def has_room_for(self, piece: _Piece) -> bool:
        if not self.spans:
            return True
        return (
            self.rows + piece.span.rows <= self.limits.rows
            and self.text_bytes + piece.text_bytes <= self.limits.text_bytes
            and len(self.spans) < self.limits.files
        )

    def add(self, piece: _Piece) -> None:
        self.spans.append(piece.span)
        self.rows += piece.span.rows
        self.text_bytes += piece.text_bytes

    def take(self) -> tuple[Span, ...]:
        spans = tuple(self.spans)
        self.spans, self.rows, self.text_bytes = [], 0, 0
        return spans


def _pieces(file: InputFile, limits: Limits) -> Iterator[_Piece]:
    """Whole small groups joined, large ones cut into parts of nearly equal size."""
    row, rows, text_bytes, stop = 0, 0, 0, 0
    held: list[RowGroup] = []
    for index, group in enumerate(file.groups):
        stop = index + 1
        fits = rows + group.rows <= limits.rows
        if held and not (fits and text_bytes + group.text_bytes <= limits.text_bytes):
            yield _joined(file, row, index - len(held), held)
            row, rows, text_bytes, held = row + rows, 0, 0, []
        parts = max(_ceil(group.rows, limits.rows), _ceil(group.text_bytes, limits.text_bytes))
        if group.rows > 1 and parts > 1:
            yield from _cut(file, row, index, group, min(parts, group.rows))
            row += group.rows
        elif group.rows or held:
            held.append(group)
            rows, text_bytes = rows + group.rows, text_bytes + group.text_bytes
    if held:
        yield _joined(file, row, stop - len(held), held)


def _joined(file: InputFile, row: int, first: int, groups: list[RowGroup]) -> _Piece:
    span = Span(
        file=file.name,
        row_start=row,
        rows=sum(group.rows for group in groups),
        first_group=first,
        stop_group=first + len(groups),
        offset=groups[0].offset,
        line=groups[0].line,
    )
    return _Piece(span, sum(group.text_bytes for group in groups))


def _cut(file: InputFile, row: int, index: int, group: RowGroup, parts: int) -> Iterator[_Piece]:
    edges = [group.rows * part // parts for part in range(parts + 1)]
    for start, stop in itertools.pairwise(edges):
        span = Span(
            file=file.name,
            row_start=row + start,
            rows=stop - start,
            first_group=index,
            stop_group=index + 1,
            skip_rows=start,
        )
        yield _Piece(span, _ceil(group.text_bytes * (stop - start), group.rows))


def _ceil(amount: int, size: int) -> int:
    return -(-amount // size)
