"""A sample of a corpus's documents, spread over its files, read without reading the rest."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from raydiff.config import CorpusSettings
from raydiff.corpus.cutting import plan_items
from raydiff.corpus.inputs import Inputs, Wanted, open_location
from raydiff.corpus.plan import Shard, Span
from raydiff.corpus.planning import PlanBuilder
from raydiff.corpus.reading import Rejected, SpanReader
from raydiff.corpus.shards import Integers
from raydiff.errors import InputError

_RUN_ROWS = 64
"""Rows that are read to take some of them."""
_ROWS_OF_A_RUN = 8


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document of a sample."""

    file: str
    row: int
    text: str | Rejected
    reference: str | None
    """What should be written for it, where the input says so."""
    run: int
    """Documents of one run stood close together, and may be alike."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Some documents of an input; each document of it was as likely to be taken."""

    rows: int
    """Documents of the input."""
    files: int
    size_bytes: int
    """Of the files."""
    documents: tuple[Document, ...]


def draw_sample(
    settings: CorpusSettings, count: int, *, seed: int, reference_column: str | None = None
) -> Sample:
    """Take `count` documents, or all if there are fewer, in input order.

    Runs of neighbouring rows are spread evenly over the input, and of each run a few rows are
    drawn: large files give more. Of Parquet nothing but footers and those runs is read; of text
    files the rows are counted first. `seed` decides which.

    Raises:
        InputError: a path, a file or a column cannot be used, or there is no document.
    """
    inputs = _open(settings, reference_column)
    builder = PlanBuilder().add_all(plan_items(inputs, inputs.listing, _RUN_ROWS))
    files = builder.files()
    runs = builder.shards(files)
    if not runs.rows:
        raise InputError(f"input: {settings.input} has no documents.", "input")
    reader = SpanReader(inputs.folder, inputs.layout)
    documents = [
        document
        for number, indices in _pick(runs.columns.edges, count, random.Random(seed))
        for document in _read(reader, reference_column, runs.columns.shard(number), number, indices)
    ]
    return Sample(
        rows=runs.rows, files=len(files), size_bytes=files.size_bytes, documents=tuple(documents)
    )


def _open(settings: CorpusSettings, reference_column: str | None) -> Inputs:
    passed = (reference_column,) if reference_column else ()
    wanted = Wanted(text=settings.text_column, id=settings.id_column, passed=passed)
    try:
        return open_location(settings.input, settings.input_storage or settings.storage, wanted)
    except InputError as error:
        if error.param != "pass_columns":
            raise
        message = str(error).replace("pass_columns", "reference_column", 1)
        raise InputError(message, "reference_column") from error


def _pick(edges: Integers, count: int, draw: random.Random) -> Iterator[tuple[int, list[int]]]:
    """Which rows of which runs: runs at even distances in rows, from a random start. `edges` has
    the rows before each run, and at the end all."""
    total = int(edges[-1])
    count = min(count, total)
    picks = -(-count // _ROWS_OF_A_RUN)
    start = draw.random()
    rows: Counter[int] = Counter()
    for pick in range(picks):
        wanted = count * (pick + 1) // picks - count * pick // picks
        place = int((pick + start) * total / picks)
        rows[int(np.searchsorted(edges, place, side="right")) - 1] += wanted
    for number in sorted(rows):
        size = int(edges[number + 1] - edges[number])
        yield number, sorted(draw.sample(range(size), min(rows[number], size)))


def _read(
    reader: SpanReader, reference: str | None, run: Shard, number: int, indices: Sequence[int]
) -> Iterator[Document]:
    places = list(run.places())
    rows = [row for span in run.spans for row in _rows(reader, reference, span)]
    for index in indices:
        (file, row), (text, wanted) = places[index], rows[index]
        yield Document(file=file, row=row, text=text, reference=wanted, run=number)


def _rows(
    reader: SpanReader, reference: str | None, span: Span
) -> Iterable[tuple[str | Rejected, str | None]]:
    found = reader.read(span)
    held = found.carried.column(reference).to_pylist() if reference else [None] * span.rows
    return zip(found.texts, (None if v is None else str(v) for v in held), strict=True)
