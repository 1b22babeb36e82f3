"""Records of text files: where each begins, and what is in it. Planning and reading share this, so
that both count the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from raydiff.corpus.inputs.delimited import delimited_records
from raydiff.corpus.inputs.formats import FileKind
from raydiff.corpus.inputs.lines import MAX_RECORD_BYTES, UTF8_BOM, UTF16_BOMS, split_lines
from raydiff.corpus.inputs.record import Record
from raydiff.errors import InputError, invalid


def read_records(
    stream: pa.NativeFile, kind: FileKind, path: str, *, offset: int = 0, line: int = 1
) -> Iterator[Record]:
    """Records of a stream that is at a byte and a line of a file; blank lines are none.

    Of a CSV file the first record is its header.

    Raises:
        InputError: the text is UTF-16.
    """
    lines = _without_mark(split_lines(stream), path) if offset == 0 else split_lines(stream)
    if kind.format == "csv":
        return delimited_records(lines, kind.delimiter, offset, line)
    return _json_lines(lines, offset, line)


def _without_mark(
    lines: Iterator[tuple[bytes | None, int]], path: str
) -> Iterator[tuple[bytes | None, int]]:
    """The lines of a file without its byte order mark, which still counts in their lengths."""
    for text, size in lines:
        if text is not None and text[:2] in UTF16_BOMS:
            message = invalid("input", expected=f"UTF-8 in {path}", got="UTF-16")
            raise InputError(message, "input")
        yield (text if text is None else text.removeprefix(UTF8_BOM)), size
        break
    yield from lines


def _json_lines(
    lines: Iterator[tuple[bytes | None, int]], offset: int, line: int
) -> Iterator[Record]:
    for text, size in lines:
        if text is None:
            problem = f"The line has {size} bytes; at most {MAX_RECORD_BYTES} are read."
            yield Record(offset, line, size, b"", problem)
        elif text.strip():
            yield Record(offset, line, size, text, None)
        offset += size
        line += 1


@dataclass(frozen=True)
class Block:
    """Consecutive records of a text file, few enough for one shard."""

    rows: int
    size_bytes: int
    offset: int
    line: int


def blocks_of(records: Iterator[Record], max_rows: int, max_bytes: int) -> Iterator[Block]:
    """Records counted in blocks of at most `max_rows`, and of `max_bytes` unless one alone has
    more."""
    rows, size, offset, line = 0, 0, 0, 0
    for record in records:
        if rows and (rows == max_rows or size + record.size > max_bytes):
            yield Block(rows, size, offset, line)
            rows, size = 0, 0
        if not rows:
            offset, line = record.offset, record.line
        rows += 1
        size += record.size
    if rows:
        yield Block(rows, size, offset, line)
