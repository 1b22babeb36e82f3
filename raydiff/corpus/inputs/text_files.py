"""JSON lines and CSV: columns and types from a sample, rows by going through the file once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b

import pyarrow as pa

from raydiff.corpus.inputs.columns import Columns, Wanted, missing_column
from raydiff.corpus.inputs.described import SAMPLE_FILES, InputFile, RowGroup, Sample
from raydiff.corpus.inputs.formats import FileKind, kind_of, open_text
from raydiff.corpus.inputs.json_lines import Malformed, has_column, keys_of, lookup, parse_line
from raydiff.corpus.inputs.json_types import json_type
from raydiff.corpus.inputs.layout import InputLayout
from raydiff.corpus.inputs.record import Record
from raydiff.corpus.inputs.records import blocks_of, read_records
from raydiff.errors import InputError, invalid
from raydiff.storage import Entry, Folder

SAMPLE_RECORDS = 1000
SAMPLE_BYTES = 4 * 2**20
_EDGE_BYTES = 64 * 2**10
_TEXT_WITHIN = 100
"""One of this many first records of a file has the text column, if only as null."""


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Say of which file an error is."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"input: {path} cannot be read: {error}.", "input") from error


def text_kind(name: str) -> FileKind:
    """What a text file of the input is by its name."""
    kind = kind_of(name)
    assert kind is not None
    return kind


def read_header(folder: Folder, name: str) -> list[str]:
    """The column names of a CSV file; none of an empty one.

    Raises:
        InputError: it cannot be read.
    """
    path = folder.path(name)
    with _named(path), open_text(folder, name, text_kind(name)) as stream:
        first = next(read_records(stream, text_kind(name), path), None)
    return header_of(first, path)


def header_of(first: Record | None, path: str) -> list[str]:
    """The column names in the first record of a CSV file.

    Raises:
        InputError: it is no header.
    """
    if first is None:
        return []
    if first.problem:
        raise InputError(f"input: {path} has no header in its line {first.line}.", "input")
    names: list[str] = first.content
    if any("\udc80" <= char <= "\udcff" for name in names for char in name):
        raise InputError(f"input: {path} has a header that is not UTF-8.", "input")
    return names


def sample_text(folder: Folder, entries: Iterable[Entry], wanted: Wanted) -> Sample:
    """Read the beginning of the first files.

    Raises:
        InputError: a file cannot be read, or has not the columns.
    """
    first = list(itertools.islice(entries, SAMPLE_FILES))
    if text_kind(first[0].name).format == "csv":
        return _sample_headers(folder, first)
    return _sample_objects(folder, first, wanted)


def _sample_headers(folder: Folder, entries: list[Entry]) -> Sample:
    """CSV has no types: every value is the string that the file has."""
    headers = ((folder.path(entry.name), read_header(folder, entry.name)) for entry in entries)
    path, header = next(((p, h) for p, h in headers if h), (folder.path(entries[0].name), []))
    return Sample(path, header, dict.fromkeys(header, pa.string()))


def _sample_objects(folder: Folder, entries: list[Entry], wanted: Wanted) -> Sample:
    objects: list[dict[str, object]] = []
    for entry in entries:
        if len(objects) < SAMPLE_RECORDS:
            objects += _first_objects(folder, entry.name, SAMPLE_RECORDS - len(objects))
    names = list(dict.fromkeys(key for record in objects for key in keys_of(record)))
    columns = wanted.settle(names)
    types = {
        name: json_type(lookup(record, name) for record in objects)
        for name in columns.carried
        if any(has_column(record, name) for record in objects)
    }
    return Sample(folder.path(entries[0].name), names, types)


def _first_objects(folder: Folder, name: str, most: int) -> list[dict[str, object]]:
    path = folder.path(name)
    objects: list[dict[str, object]] = []
    with _named(path), open_text(folder, name, text_kind(name)) as stream:
        for record in read_records(stream, text_kind(name), path):
            if len(objects) >= most or record.offset > SAMPLE_BYTES:
                break
            try:
                objects.append(parse_line(record.content))
            except Malformed:
                _require_lines(record, path)
    return objects


def _require_lines(record: Record, path: str) -> None:
    """Tell one JSON document over several lines from lines of JSON, one of which is broken."""
    start = record.content.strip()
    if record.line == 1 and (start == b"{" or start.startswith(b"[")):
        raise InputError(
            invalid(
                "input",
                expected="one JSON object a line",
                got=f"{path}, which is one JSON document",
                remedy="Convert it, for example with: jq -c '.[]'.",
            ),
            "input",
        )


def describe_text(
    folder: Folder, layout: InputLayout, entry: Entry, max_rows: int, max_bytes: int
) -> InputFile:
    """A file of the input, whose rows are counted while its groups are gone through.

    Raises:
        InputError: it cannot be read, or has not the needed columns; also later, from `groups`.
    """
    return InputFile(
        name=entry.name,
        size_bytes=entry.size_bytes,
        version=entry.version,
        digest=text_digest(folder, entry.name),
        groups=_groups(folder, layout, entry.name, max_rows, max_bytes),
    )


def text_digest(folder: Folder, name: str) -> str:
    """Hash a file's size, beginning and end.

    Raises:
        InputError: it cannot be read.
    """
    with _named(folder.path(name)), folder.open(name) as stream:
        size = stream.size()
        digest = blake2b(f"{size}\0".encode(), digest_size=16)
        digest.update(stream.read(min(size, _EDGE_BYTES)))
        stream.seek(max(0, size - _EDGE_BYTES))
        digest.update(stream.read(min(size, _EDGE_BYTES)))
    return digest.hexdigest()


def _groups(
    folder: Folder, layout: InputLayout, name: str, max_rows: int, max_bytes: int
) -> Iterator[RowGroup]:
    kind, path = text_kind(name), folder.path(name)
    with _named(path), open_text(folder, name, kind) as stream:
        records = read_records(stream, kind, path)
        if kind.format == "csv":
            first = next(records, None)
            if first is not None:
                _require_header(path, layout, header_of(first, path))
        else:
            records = _with_known_columns(records, layout.columns, path)
        for block in blocks_of(records, max_rows, max_bytes):
            yield RowGroup(
                rows=block.rows,
                text_bytes=block.size_bytes,
                offset=block.offset,
                line=block.line,
            )


def _require_header(path: str, layout: InputLayout, header: list[str]) -> None:
    for name in (layout.columns.text, *layout.in_files):
        if header.count(name) != 1:
            raise missing_column(path, layout.columns, name, header)


def _with_known_columns(records: Iterator[Record], columns: Columns, path: str) -> Iterator[Record]:
    """Pass records on, having seen the text column in one of the first."""
    first: list[Record] = []
    names: dict[str, None] = {}
    for record in records:
        first.append(record)
        try:
            value = parse_line(record.content)
        except Malformed:
            _require_lines(record, path)
            break  # its row is an error; what it would have is unknown
        names.update(dict.fromkeys(keys_of(value)))
        if has_column(value, columns.text):
            break
        if len(first) == _TEXT_WITHIN or record.offset > SAMPLE_BYTES:
            raise missing_column(path, columns, columns.text, list(names))
    else:
        if first:
            raise missing_column(path, columns, columns.text, list(names))
    return itertools.chain(first, records)
