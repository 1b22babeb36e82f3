"""An input opened: where its files are, which they are, and how each is read."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from raydiff.config import CorpusSettings, StorageSettings
from raydiff.corpus.inputs.columns import Columns, Wanted, missing_column, require_free_names
from raydiff.corpus.inputs.described import InputFile
from raydiff.corpus.inputs.finding import list_files, select
from raydiff.corpus.inputs.footers import describe_parquet, read_footer, sample_parquet
from raydiff.corpus.inputs.formats import FileKind
from raydiff.corpus.inputs.layout import InputLayout
from raydiff.corpus.inputs.listing import Listing
from raydiff.corpus.inputs.partitions import partition_types, partition_values
from raydiff.corpus.inputs.text_files import describe_text, sample_text, text_digest
from raydiff.errors import InputError
from raydiff.storage import Entry, Folder

_THREADS = 16
_AHEAD = 4 * _THREADS
_LARGE_TEXT_BYTES = 4 * 2**20
"""Larger text files are gone through as their rows are wanted, one at a time."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The input of a run."""

    folder: Folder
    """What file names are relative to."""
    listing: Listing
    layout: InputLayout

    @property
    def columns(self) -> Columns:
        """Which columns are read."""
        return self.layout.columns


def open_inputs(settings: CorpusSettings) -> Inputs:
    """List the input of a new run, and settle columns and types from its first files.

    Raises:
        InputError: a path, a file or a column cannot be used; the message names it.
        StorageError: the store refused or is out of reach.
    """
    wanted = Wanted(text=settings.text_column, id=settings.id_column, passed=settings.pass_columns)
    inputs = open_location(settings.input, input_storage(settings), wanted)
    require_free_names(inputs.columns)
    return inputs


def input_storage(settings: CorpusSettings) -> StorageSettings:
    """How the input's store is reached: like the output's unless said otherwise."""
    return settings.input_storage or settings.storage


def open_location(location: str, storage: StorageSettings, wanted: Wanted) -> Inputs:
    """Like `open_inputs`, for readers that write no output: columns may have any name.

    Raises:
        InputError: a path, a file or a column cannot be used; the message names it.
        StorageError: the store refused or is out of reach.
    """
    selection = select(location, storage)
    listing, kind = list_files(selection)
    layout = _settle(selection.folder, listing, kind, wanted)
    return Inputs(folder=selection.folder, listing=listing, layout=layout)


def reopen_inputs(settings: CorpusSettings, layout: InputLayout) -> Inputs:
    """List the input of a run whose layout is known; no file is opened.

    Raises:
        InputError: there is no input any more, or of another format.
        StorageError: the store refused or is out of reach.
    """
    selection = select(settings.input, input_storage(settings))
    listing, kind = list_files(selection)
    if kind.format != layout.format:
        raise InputError(
            f"input: {settings.input} has {kind.format} files now, and had {layout.format} "
            "files when the run was planned.",
            "input",
        )
    return Inputs(folder=selection.folder, listing=listing, layout=layout)


def _settle(folder: Folder, listing: Listing, kind: FileKind, wanted: Wanted) -> InputLayout:
    keys = partition_types(entry.name for entry in listing)
    sample = (sample_parquet if kind.format == "parquet" else sample_text)(folder, listing, wanted)
    columns = wanted.settle(sample.columns)
    carried: list[pa.Field[Any]] = []
    for name in columns.carried:
        found = sample.types.get(name) or keys.get(name)
        if found is None and sample.columns:
            raise missing_column(sample.path, columns, name, sample.columns)
        carried.append(pa.field(name, found or pa.string()))
    return InputLayout(
        format=kind.format,
        columns=columns,
        carried=pa.schema(carried),
        partitions=pa.schema([f for f in carried if f.name in keys and f.name not in sample.types]),
    )


def describe_files(
    inputs: Inputs, entries: Iterable[Entry], max_rows: int, max_bytes: int
) -> Iterator[InputFile]:
    """Files as their footers, or going through them, tell; in order, some read ahead.

    Args:
        max_rows: of a group of a text file.
        max_bytes: likewise.

    Raises:
        InputError: a file cannot be read, or has not the columns of the others.
    """

    def describe(entry: Entry) -> InputFile:
        path = inputs.folder.path(entry.name)
        partition_values(entry.name, inputs.layout.partitions, path)
        if inputs.layout.format == "parquet":
            return describe_parquet(inputs.folder, inputs.layout, entry)
        file = describe_text(inputs.folder, inputs.layout, entry, max_rows, max_bytes)
        small = entry.size_bytes <= _LARGE_TEXT_BYTES
        return replace(file, groups=tuple(file.groups)) if small else file

    return _in_order(describe, entries)


def _in_order(
    describe: Callable[[Entry], InputFile], entries: Iterable[Entry]
) -> Iterator[InputFile]:
    """What `describe` gives for each entry, with a bounded number of calls ahead of the reader."""
    pending = iter(entries)
    ahead: deque[Future[InputFile]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            for entry in itertools.islice(pending, _AHEAD):
                ahead.append(pool.submit(describe, entry))
            while ahead:
                yield ahead.popleft().result()
                for entry in itertools.islice(pending, 1):
                    ahead.append(pool.submit(describe, entry))
        finally:
            for future in ahead:
                future.cancel()


def file_digest(inputs: Inputs, name: str) -> str:
    """What tells a file from another of its size: a hash of its footer, or of the edges of a text.

    Raises:
        InputError: it cannot be read.
    """
    if inputs.layout.format == "parquet":
        return read_footer(inputs.folder, name).digest
    return text_digest(inputs.folder, name)
