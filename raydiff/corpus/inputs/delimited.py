"""Records of CSV: the standard library's parser, told where each record begins.

The parser takes lines only as it needs them, so the lines taken for a record are the record.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator

from raydiff.corpus.inputs.lines import MAX_RECORD_BYTES
from raydiff.corpus.inputs.record import Record

# The parser's own limit is one of the whole process, and far below what documents have.
csv.field_size_limit(MAX_RECORD_BYTES)

_NEVER_CLOSED = "A quoted field begins here that is never closed."


def delimited_records(
    lines: Iterator[tuple[bytes | None, int]], delimiter: str, offset: int, line: int
) -> Iterator[Record]:
    """Records as lists of strings, undecodable bytes escaped as surrogates; empty lines are none.

    A quote that is never closed, or not within the size of a record, costs the line on which it
    opens and not the rest of the file.
    """
    return _Records(lines, delimiter, offset, line).records()


class _TooLong(Exception):
    """A record in quotes goes on for too long."""


class _Records:
    def __init__(
        self, lines: Iterator[tuple[bytes | None, int]], delimiter: str, offset: int, line: int
    ) -> None:
        self._source = lines
        self._again: deque[tuple[bytes | None, int]] = deque()
        self._taken: list[tuple[bytes | None, int]] = []
        self._taken_bytes = 0
        self._delimiter = delimiter
        self._offset = offset
        self._line = line
        self._at_end = False

    def records(self) -> Iterator[Record]:
        parser = self._parser()
        while True:
            problem = None
            fields: list[str] = []
            try:
                fields = next(parser)
            except StopIteration:
                return
            except csv.Error as error:
                problem = f"It cannot be parsed as CSV: {error}."
            except _TooLong:
                problem = _NEVER_CLOSED
            if self._at_end or problem is _NEVER_CLOSED:
                yield self._only_first_line()
                parser = self._parser()
                continue
            record = self._record(fields, problem)
            if fields or problem:
                yield record

    def _parser(self) -> Iterator[list[str]]:
        self._at_end = False
        return csv.reader(self._text_lines(), delimiter=self._delimiter)

    def _text_lines(self) -> Iterator[str]:
        """Lines for the parser. It asks for more only inside quotes once it has some of a
        record."""
        while True:
            following = self._next_line()
            if following is None:
                self._at_end = bool(self._taken)
                return
            text, size = following
            self._taken.append(following)
            self._taken_bytes += size
            if text is None or (self._taken_bytes > MAX_RECORD_BYTES and len(self._taken) > 1):
                raise _TooLong
            yield text.decode("utf-8", "surrogateescape")

    def _next_line(self) -> tuple[bytes | None, int] | None:
        if not self._again:
            following = next(self._source, None)
            if following is None:
                return None
            self._again.extend(_physical_lines(*following))
        return self._again.popleft()

    def _record(self, fields: list[str], problem: str | None) -> Record:
        record = Record(self._offset, self._line, self._taken_bytes, fields, problem)
        self._offset += self._taken_bytes
        self._line += len(self._taken)
        self._taken, self._taken_bytes = [], 0
        return record

    def _only_first_line(self) -> Record:
        """Give up the record: its first line is an error, the others are read again."""
        self._again.extendleft(reversed(self._taken[1:]))
        first, size = self._taken[0]
        self._taken, self._taken_bytes = [self._taken[0]], size
        too_long = f"The line has {size} bytes; at most {MAX_RECORD_BYTES} are read."
        return self._record([], too_long if first is None else _NEVER_CLOSED)


def _physical_lines(text: bytes | None, size: int) -> list[tuple[bytes | None, int]]:
    """A lone carriage return ends a line too, as the parser expects."""
    if text is None or text.count(b"\r") == text.endswith(b"\r\n"):
        return [(text, size)]
    lines = text.splitlines(keepends=True)
    lengths = [len(line) for line in lines]
    lengths[0] += size - len(text)  # a byte order mark that was taken off
    return list(zip(lines, lengths, strict=True))
