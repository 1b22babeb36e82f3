"""What there is to read: input files by their footers, and which columns matter.

Only footers are read here. A file that cannot be read is refused by name before a run starts,
so that no run ends with part of its input missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.corpus.storage import Folder, LocalFolder, local_path
from raydiff.errors import InputError, invalid

ID_COLUMNS = ("doc_id", "id")
"""Names taken as the id column when the caller names none."""

GENERATED_ID = "id"
"""Name of the output's id column when the input has none."""

RESERVED = (
    "source_file",
    "source_row",
    "summary",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "forwards",
    "chunks",
    "error_type",
    "error_message",
    "attempts",
)
"""Columns of the output that an id or passed column may not be called."""

_FOOTER_THREADS = 16
_MAGIC = b"PAR1"


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which input columns a run reads."""

    text: str
    id: str | None
    """`None` makes ids of the form `file:row`."""
    passed: tuple[str, ...] = ()

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns copied to the output unchanged."""
        return (*([self.id] if self.id else []), *self.passed)


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """A run of rows that a Parquet file stores together."""

    rows: int
    text_bytes: int
    """Uncompressed bytes of the text column, as the footer states them."""
    id_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One input file as its footer describes it."""

    name: str
    """Path relative to the input directory: the file's identity in ids, seeds and outputs."""
    size_bytes: int
    footer_digest: str
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The input of a run."""

    folder: Folder
    """What file names are relative to."""
    files: tuple[InputFile, ...]
    columns: Columns

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def find_files(location: str) -> tuple[Path, list[str]]:
    """The directory that names are relative to, and the sorted names of the input files.

    A directory is searched at any depth for `*.parquet`; names that begin with a dot or an
    underscore are left out, as in Spark and Hive.

    Raises:
        InputError: there is no such path, or the directory has no such file.
    """
    path = local_path(location, "input")
    if path.is_file():
        return path.parent, [path.name]
    if not path.is_dir():
        expected = "a Parquet file or a directory of them"
        raise InputError(
            invalid("input", expected=expected, got=location, remedy="There is no such path."),
            "input",
        )
    relative = (p.relative_to(path) for p in path.rglob("*.parquet") if p.is_file())
    names = sorted(str(p) for p in relative if not any(part[0] in "._" for part in p.parts))
    if not names:
        raise InputError(f"input: {path} has no file named *.parquet.", "input")
    return path, names


def read_inputs(
    location: str, *, text: str, id_column: str | None, passed: Sequence[str]
) -> Inputs:
    """Read every footer and settle the columns.

    Raises:
        InputError: a path, a file or a column cannot be used; the message names it.
    """
    root, names = find_files(location)
    folder = LocalFolder(root)
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        footers = list(pool.map(lambda name: _read_footer(folder, name), names))
    columns = _settle_columns(footers, text, id_column, tuple(passed))
    files = tuple(_input_file(footer, columns) for footer in footers)
    return Inputs(folder=folder, files=files, columns=columns)


@dataclass(frozen=True)
class _Footer:
    path: str
    name: str
    size_bytes: int
    digest: str
    metadata: pq.FileMetaData
    schema: pa.Schema


def _read_footer(folder: Folder, name: str) -> _Footer:
    path = folder.path(name)
    try:
        with folder.open(name) as stream:
            size = stream.size()
            digest = _footer_digest(stream, size, path)
            stream.seek(0)
            metadata = pq.read_metadata(stream)
            schema = metadata.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"input: {path} cannot be read as Parquet: {error}.", "input") from error
    return _Footer(path, name, size, digest, metadata, schema)


def _footer_digest(stream: pa.NativeFile, size: int, path: str) -> str:
    """Hash the footer: it holds every column chunk's place, size and statistics."""
    if size < 12:
        raise InputError(f"input: {path} is not a Parquet file: it has {size} bytes.", "input")
    stream.seek(size - 8)
    tail = stream.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > size - 12:
        stream.seek(0)
        begins = stream.read(4) == _MAGIC
        why = "it is truncated" if begins else "its first and last bytes are not PAR1"
        raise InputError(f"input: {path} is not a whole Parquet file: {why}.", "input")
    stream.seek(size - 8 - length)
    return blake2b(stream.read(length), digest_size=16).hexdigest()


def _settle_columns(
    footers: Sequence[_Footer], text: str, id_column: str | None, passed: tuple[str, ...]
) -> Columns:
    first = footers[0]
    if id_column is None:
        id_column = next((c for c in ID_COLUMNS if c in first.schema.names and c != text), None)
    columns = Columns(text=text, id=id_column, passed=passed)
    _check_output_names(columns)
    for footer in footers:
        _check_text(footer, text)
        for name in columns.carried:
            _require_column(footer, name, "id_column" if name == id_column else "pass_columns")
            _require_same_type(first, footer, name)
    return columns


def _check_output_names(columns: Columns) -> None:
    for name in columns.carried:
        if name in RESERVED or (columns.id is None and name == GENERATED_ID):
            param = "id_column" if name == columns.id else "pass_columns"
            expected = "no column that the output already has"
            raise InputError(
                invalid(param, expected=expected, got=name, remedy="Rename it in the input."),
                param,
            )
    repeated = {name for name in columns.carried if columns.carried.count(name) > 1}
    if repeated:
        expected = "each column once, the id column not among them"
        raise InputError(
            invalid("pass_columns", expected=expected, got=sorted(repeated)[0]), "pass_columns"
        )


def _check_text(footer: _Footer, text: str) -> None:
    _require_column(footer, text, "text_column")
    kind = footer.schema.field(text).type
    if not is_text(kind):
        expected = f"a string or binary column in {footer.path}"
        raise InputError(
            invalid("text_column", expected=expected, got=f"{text}: {kind}"), "text_column"
        )


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold documents; an all-null column can."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    checks = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
        pa.types.is_null,
    )
    return any(check(kind) for check in checks)


def _require_column(footer: _Footer, name: str, param: str) -> None:
    count = footer.schema.names.count(name)
    if count == 1:
        return
    have = ", ".join(footer.schema.names)
    why = "has no column" if count == 0 else "has more than one column"
    raise InputError(f"{param}: {footer.path} {why} {name!r}; its columns are {have}.", param)


def _require_same_type(first: _Footer, other: _Footer, name: str) -> None:
    wanted, got = first.schema.field(name).type, other.schema.field(name).type
    if wanted != got:
        raise InputError(
            f"input: column {name!r} is {wanted} in {first.path} but {got} in {other.path}; "
            "a carried column needs one type.",
            "input",
        )


def _input_file(footer: _Footer, columns: Columns) -> InputFile:
    groups = (footer.metadata.row_group(i) for i in range(footer.metadata.num_row_groups))
    return InputFile(
        name=footer.name,
        size_bytes=footer.size_bytes,
        footer_digest=footer.digest,
        groups=tuple(
            RowGroup(
                rows=group.num_rows,
                text_bytes=_column_bytes(group, columns.text),
                id_bytes=_column_bytes(group, columns.id) if columns.id else 0,
            )
            for group in groups
        ),
    )


def _column_bytes(group: Any, name: str) -> int:
    chunks: Iterable[Any] = (group.column(i) for i in range(group.num_columns))
    return sum(c.total_uncompressed_size for c in chunks if c.path_in_schema == name)
