"""The formats of input files, known by their names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

import pyarrow as pa

from raydiff.errors import InputError, invalid
from raydiff.storage import Folder

Format = Literal["parquet", "jsonl", "csv"]

PARQUET_MAGIC = b"PAR1"

_FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".parq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
}
Codec = Literal["gzip", "zstd", "bz2", "lz4"]

_CODECS: dict[str, Codec] = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bz2",
    ".lz4": "lz4",
}
EXTENSIONS = ".parquet, .jsonl, .ndjson, .json, .csv or .tsv, texts also with .gz, .zst, .bz2, .lz4"


@dataclass(frozen=True)
class FileKind:
    """What a file's name says of its content."""

    format: Format
    codec: Codec | None = None
    """How the whole file is compressed; Parquet has its own compression inside."""
    delimiter: str = ","
    """Between the fields of a CSV file."""


def kind_of(name: str) -> FileKind | None:
    """What a file is by its name; `None` when that tells nothing.

    Raises:
        InputError: a Parquet file is compressed as a whole, so that it cannot be read at random.
    """
    path = PurePosixPath(name.lower())
    codec = _CODECS.get(path.suffix)
    suffix = PurePosixPath(path.stem).suffix if codec else path.suffix
    file_format = _FORMATS.get(suffix)
    if file_format is None:
        return None
    if codec and file_format == "parquet":
        expected = "Parquet files with compression inside"
        raise InputError(
            invalid("input", expected=expected, got=name, remedy="Decompress it."), "input"
        )
    return FileKind(file_format, codec, "," if suffix == ".csv" else "\t")


def open_text(folder: Folder, name: str, kind: FileKind) -> pa.NativeFile:
    """A stream of a text file's bytes, decompressed.

    Raises:
        OSError: the file cannot be opened.
    """
    stream = folder.open(name)
    return pa.CompressedInputStream(stream, kind.codec) if kind.codec else stream
