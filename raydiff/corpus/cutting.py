"""Cuts files into shards: whole small files together, large ones by row groups or rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from raydiff.corpus.inputs import InputFile
from raydiff.corpus.plan import Shard, Span, make_shard

MAX_SHARD_TEXT_BYTES = 8 * 2**20
"""A shard's text and tokens (about ten times its bytes) are in memory at once, so large documents
make shards of fewer rows."""


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
            shards.append(make_shard(len(shards), (span,)))
    return shards


def _spans(file: InputFile, shard_rows: int, max_text_bytes: int) -> Iterator[Span]:
    row, first, rows, text_bytes = 0, 0, 0, 0
    for index, group in enumerate(file.groups):
        fits = rows + group.rows <= shard_rows and text_bytes + group.text_bytes <= max_text_bytes
        if rows and not fits:
            yield _whole_groups(file, row, rows, first, index)
            row, rows, text_bytes = row + rows, 0, 0
        if not rows:
            first = index
        pieces = max(_ceil(group.rows, shard_rows), _ceil(group.text_bytes, max_text_bytes))
        if group.rows and pieces > 1:
            yield from _cut_group(file, row, index, min(pieces, group.rows))
            row += group.rows
        else:
            rows, text_bytes = rows + group.rows, text_bytes + group.text_bytes
    if rows:
        yield _whole_groups(file, row, rows, first, len(file.groups))


def _whole_groups(file: InputFile, row: int, rows: int, first: int, stop: int) -> Span:
    return Span(file=file.name, row_start=row, rows=rows, first_group=first, stop_group=stop)


def _cut_group(file: InputFile, row: int, index: int, pieces: int) -> Iterator[Span]:
    rows = file.groups[index].rows
    edges = [rows * piece // pieces for piece in range(pieces + 1)]
    for start, stop in itertools.pairwise(edges):
        yield Span(
            file=file.name,
            row_start=row + start,
            rows=stop - start,
            first_group=index,
            stop_group=index + 1,
            skip_rows=start,
        )


def _ceil(amount: int, size: int) -> int:
    return -(-amount // size)
