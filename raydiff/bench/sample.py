"""A sample of a corpus's documents, spread over its files, read without reading the rest."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow.parquet as pq

from raydiff.config import CorpusSettings
from raydiff.corpus.cutting import cut_into_shards
from raydiff.corpus.inputs import Columns, Inputs, read_inputs
from raydiff.corpus.plan import Shard, Span
from raydiff.corpus.reading import CorruptRows, Rejected, SpanReader, decode_texts
from raydiff.errors import InputError, invalid

_RUN_ROWS = 64
"""Rows that are read to take some of them."""
_MOST_RUNS = 20_000
"""Runs that the input is cut into at most."""
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

    inputs: Inputs
    documents: tuple[Document, ...]


def draw_sample(
    settings: CorpusSettings, count: int, *, seed: int, reference_column: str | None = None
) -> Sample:
    """Take `count` documents, or all if there are fewer, in input order.

    Runs of neighbouring rows are spread evenly over the input, and of each run a few rows are
    drawn: large files give more, and nothing but the footers and those runs is read. `seed`
    decides which.

    Raises:
        InputError: a path, a file or a column cannot be used, or there is no document.
    """
    inputs = read_inputs(
        settings.input, text=settings.text_column, id_column=settings.id_column, passed=()
    )
    passed = (reference_column,) if reference_column else ()
    columns = Columns(text=inputs.columns.text, id=None, passed=passed)
    if not inputs.rows:
        raise InputError(f"input: {settings.input} has no documents.", "input")
    runs = cut_into_shards(inputs.files, max(_RUN_ROWS, inputs.rows // _MOST_RUNS))
    reader = SpanReader(inputs.folder, columns)
    _require_column(inputs, reference_column)
    documents = [
        document
        for number, indices in _pick(runs, count, random.Random(seed))
        for document in _read(reader, columns, runs[number], number, indices)
    ]
    return Sample(inputs=inputs, documents=tuple(documents))


def _require_column(inputs: Inputs, name: str | None) -> None:
    first = inputs.files[0].name
    with inputs.folder.open(first) as stream:
        names = pq.read_schema(stream).names
    if name is not None and name not in names:
        expected = f"one of {', '.join(names)} in {first}"
        raise InputError(
            invalid("reference_column", expected=expected, got=name), "reference_column"
        )


def _pick(
    runs: Sequence[Shard], count: int, draw: random.Random
) -> Iterator[tuple[int, list[int]]]:
    """Which rows of which runs: runs at even distances in rows, from a random start."""
    ends = list(accumulate(run.rows for run in runs))
    count = min(count, ends[-1])
    picks = -(-count // _ROWS_OF_A_RUN)
    start = draw.random()
    rows: Counter[int] = Counter()
    for pick in range(picks):
        wanted = count * (pick + 1) // picks - count * pick // picks
        rows[bisect_right(ends, int((pick + start) * ends[-1] / picks))] += wanted
    for number in sorted(rows):
        size = runs[number].rows
        yield number, sorted(draw.sample(range(size), min(rows[number], size)))


def _read(
    reader: SpanReader, columns: Columns, run: Shard, number: int, indices: Sequence[int]
) -> Iterator[Document]:
    places = list(run.places())
    rows = [row for span in run.spans for row in _rows(reader, columns, span)]
    for index in indices:
        (file, row), (text, reference) = places[index], rows[index]
        yield Document(file=file, row=row, text=text, reference=reference, run=number)


def _rows(
    reader: SpanReader, columns: Columns, span: Span
) -> Iterable[tuple[str | Rejected, str | None]]:
    try:
        table = reader.read(span)
    except CorruptRows as error:
        return [(Rejected(error_type="CorruptRows", message=str(error)), None)] * span.rows
    texts = decode_texts(table.column(columns.text))
    held = table.column(columns.passed[0]).to_pylist() if columns.passed else [None] * span.rows
    return zip(texts, (None if value is None else str(value) for value in held), strict=True)
