"""The output rows: one input row is one row of the summaries or one of the errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from raydiff.corpus.inputs import GENERATED_ID, Columns
from raydiff.corpus.plan import Shard
from raydiff.corpus.work import Failure, Summary


def output_tables(
    shard: Shard,
    columns: Columns,
    carried: pa.Table,
    summaries: Mapping[int, Summary],
    failures: Mapping[int, Failure],
    answer_column: str = "summary",
) -> tuple[pa.Table, pa.Table]:
    """The shard's answers and its errors, in input order.

    `carried` has the input columns that go to the output, one row per row of the shard. Keys are
    indices in the shard; the two sets are disjoint and cover it.
    """
    done = sorted(summaries)
    failed = sorted(failures)
    good = _identity(shard, columns, carried, done)
    for name in columns.passed:
        good = good.append_column(carried.schema.field(name), _take(carried, name, done))
    results = [summaries[row] for row in done]
    for name, kind, values in _answer_columns(results, answer_column):
        good = good.append_column(pa.field(name, kind), pa.array(values, kind))
    bad = _identity(shard, columns, carried, failed)
    for name, kind, values in _failure_columns([failures[row] for row in failed]):
        bad = bad.append_column(pa.field(name, kind), pa.array(values, kind))
    return good, bad


_Column = tuple[str, pa.DataType, Sequence[object]]


def _answer_columns(results: Sequence[Summary], name: str) -> list[_Column]:
    label = [("label_probability", pa.float64(), [r.probability for r in results])]
    return [
        (name, pa.string(), [r.text for r in results]),
        *(label if name == "label" else ()),
        ("finish_reason", pa.string(), [r.finish_reason for r in results]),
        ("prompt_tokens", pa.int64(), [r.totals.prompt_tokens for r in results]),
        ("completion_tokens", pa.int64(), [r.totals.completion_tokens for r in results]),
        ("forwards", pa.int64(), [r.totals.forwards for r in results]),
        ("chunks", pa.int64(), [r.chunks for r in results]),
        ("truncated", pa.bool_(), [r.truncated for r in results]),
    ]


def _failure_columns(failures: Sequence[Failure]) -> list[_Column]:
    return [
        ("error_type", pa.string(), [f.error_type for f in failures]),
        ("error_message", pa.string(), [f.message for f in failures]),
        ("attempts", pa.int64(), [f.attempts for f in failures]),
    ]


def _identity(
    shard: Shard, columns: Columns, carried: pa.Table, indices: Sequence[int]
) -> pa.Table:
    places = list(shard.places())
    files = pa.array([places[index][0] for index in indices], pa.string())
    rows = pa.array([places[index][1] for index in indices], pa.int64())
    ids: Any
    id_field: pa.Field[Any]
    if columns.id is None:
        ids = pa.array([f"{file}:{row}" for file, row in map(places.__getitem__, indices)])
        ids, id_field = ids.cast(pa.string()), pa.field(GENERATED_ID, pa.string())
    else:
        ids, id_field = _take(carried, columns.id, indices), carried.schema.field(columns.id)
    named: list[pa.Field[Any]] = [
        id_field,
        pa.field("source_file", pa.string()),
        pa.field("source_row", pa.int64()),
    ]
    return pa.table([ids, files, rows], schema=pa.schema(named))


def _take(carried: pa.Table, name: str, indices: Sequence[int]) -> pa.ChunkedArray[Any]:
    return carried.column(name).take(pa.array(indices, pa.int64()))
