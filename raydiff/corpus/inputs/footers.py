"""Parquet files by their footers: types, row groups, and whether they are whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.corpus.inputs.columns import Columns, Wanted, missing_column
from raydiff.corpus.inputs.described import SAMPLE_FILES, InputFile, RowGroup, Sample
from raydiff.corpus.inputs.formats import PARQUET_MAGIC
from raydiff.corpus.inputs.layout import InputLayout
from raydiff.corpus.inputs.paths import column_names, find_path
from raydiff.corpus.inputs.types import agree, is_text, output_type
from raydiff.errors import InputError, invalid
from raydiff.storage import Entry, Folder

_TAIL_BYTES = 8
_SMALLEST_BYTES = 12
_GUESS_BYTES = 64 * 2**10


@dataclass(frozen=True)
class Footer:
    """A Parquet file's own description."""

    path: str
    digest: str
    metadata: pq.FileMetaData
    schema: pa.Schema


def read_footer(folder: Folder, name: str) -> Footer:
    """Read and decode a footer.

    Raises:
        InputError: the file is not whole, or no Parquet file.
    """
    path = folder.path(name)
    try:
        with folder.open(name) as stream:
            content = _footer_bytes(stream, path)
        metadata = pq.read_metadata(pa.BufferReader(content))
        schema = metadata.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"input: {path} cannot be read as Parquet: {error}.", "input") from error
    digest = blake2b(content[len(PARQUET_MAGIC) : -_TAIL_BYTES], digest_size=16).hexdigest()
    return Footer(path, digest, metadata, schema)


def _footer_bytes(stream: pa.NativeFile, path: str) -> bytes:
    """A file's footer alone, as a Parquet file without rows has it: mostly one read.

    It holds every column chunk's place, size and statistics.
    """
    size = stream.size()
    if size < _SMALLEST_BYTES:
        raise InputError(f"input: {path} is not a Parquet file: it has {size} bytes.", "input")
    end = _read_end(stream, size, min(size, _GUESS_BYTES))
    length = int.from_bytes(end[-_TAIL_BYTES:][:4], "little") + _TAIL_BYTES
    if end[-4:] != PARQUET_MAGIC or length > size - len(PARQUET_MAGIC):
        stream.seek(0)
        begins = stream.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
        why = "it is truncated" if begins else "its first and last bytes are not PAR1"
        raise InputError(f"input: {path} is not a whole Parquet file: {why}.", "input")
    if length > len(end):
        end = _read_end(stream, size, length)
    return PARQUET_MAGIC + end[-length:]


def _read_end(stream: pa.NativeFile, size: int, length: int) -> bytes:
    stream.seek(size - length)
    content: bytes = stream.read(length)
    return content


def footer_columns(footer: Footer) -> list[str]:
    """What the file's columns can be called."""
    return list(column_names(footer.schema))


def column_type(footer: Footer, columns: Columns, name: str) -> pa.DataType:
    """The type of a column.

    Raises:
        InputError: the file has no one column of that name.
    """
    found = find_path(footer.schema, name)
    if found is None:
        raise missing_column(footer.path, columns, name, footer_columns(footer))
    return found[1]


def require_text(footer: Footer, columns: Columns) -> None:
    """Check the text column.

    Raises:
        InputError: there is none, or it is of another kind.
    """
    kind = column_type(footer, columns, columns.text)
    if not is_text(kind):
        expected = f"a column of strings, of bytes or of lists of them in {footer.path}"
        raise InputError(
            invalid("text_column", expected=expected, got=f"{columns.text}: {kind}"),
            "text_column",
        )


def sample_parquet(folder: Folder, entries: Iterable[Entry], wanted: Wanted) -> Sample:
    """Columns and types by the first footers: of a column that is null in some files, the type it
    has in another.

    Raises:
        InputError: a file cannot be read, or has not the columns.
    """
    first: Footer | None = None
    columns: Columns | None = None
    types: dict[str, pa.DataType] = {}
    for entry in itertools.islice(entries, SAMPLE_FILES):
        footer = read_footer(folder, entry.name)
        if not footer.metadata.num_rows and first is not None:
            continue
        if first is None or not first.metadata.num_rows:
            first = footer
            columns = wanted.settle(footer_columns(footer))
            types = {}
        assert columns is not None
        for name in columns.carried:
            if find_path(footer.schema, name) and types.get(name) in (None, pa.null()):
                types[name] = output_type(column_type(footer, columns, name))
        if footer.metadata.num_rows and pa.null() not in types.values():
            break
    assert first is not None
    assert columns is not None
    require_text(first, columns)
    return Sample(first.path, footer_columns(first), types)


def describe_parquet(folder: Folder, layout: InputLayout, entry: Entry) -> InputFile:
    """A file of the input as its footer describes it.

    Raises:
        InputError: it cannot be read, or has not the columns of the others.
    """
    footer = read_footer(folder, entry.name)
    if footer.metadata.num_rows:
        require_text(footer, layout.columns)
        for name in layout.in_files:
            _require_type(footer, layout, name)
    return InputFile(
        name=entry.name,
        size_bytes=entry.size_bytes,
        version=entry.version,
        digest=footer.digest,
        groups=tuple(_row_groups(footer, layout.columns.text)),
    )


def _require_type(footer: Footer, layout: InputLayout, name: str) -> None:
    wanted, got = layout.carried.field(name).type, column_type(footer, layout.columns, name)
    if not agree(wanted, got):
        raise InputError(
            f"input: column {name!r} is {wanted} in the first file but {got} in {footer.path}; "
            "a carried column needs one type.",
            "input",
        )


def _row_groups(footer: Footer, text: str) -> Iterator[RowGroup]:
    if not footer.metadata.num_rows:
        return
    chunks = chunks_of(footer.metadata, [text])
    for index in range(footer.metadata.num_row_groups):
        group = footer.metadata.row_group(index)
        text_bytes = sum(group.column(i).total_uncompressed_size for i in chunks)
        yield RowGroup(rows=group.num_rows, text_bytes=text_bytes)


def chunks_of(metadata: pq.FileMetaData, names: Sequence[str]) -> list[int]:
    """Indices of the column chunks that hold the columns."""
    group = metadata.row_group(0)
    paths: Iterable[Any] = (group.column(i).path_in_schema for i in range(group.num_columns))
    return [
        index
        for index, path in enumerate(paths)
        if any(path == name or path.startswith(f"{name}.") for name in names)
    ]
