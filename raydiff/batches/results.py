"""The output and error files of a batch, from what its run has committed.

One input line is one line of one of the two: the answered ones are in the output file, all others
in the error file, those too that were never executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.batches.files import FileRecord
from raydiff.batches.ids import line_id, result_file_id
from raydiff.batches.pieces import PieceWriter
from raydiff.batches.records import BatchRecord, Ending
from raydiff.batches.store import BatchStore
from raydiff.corpus.commit import Totals, details_of
from raydiff.corpus.parts import Part
from raydiff.corpus.request_work import refusal_of
from raydiff.storage import Folder

ID_COLUMN = "custom_id"
BODY_COLUMN = "body"
NEVER_RUN: dict[str, tuple[str, str]] = {
    "cancelled": (
        "batch_cancelled",
        "This request was not executed, because the batch was cancelled.",
    ),
    "expired": (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
}

_OUTPUT = "output"
_ERRORS = "errors"


@dataclass(frozen=True, kw_only=True)
class Results:
    """What was written."""

    completed: int
    failed: int
    output_file_id: str | None
    error_file_id: str | None
    totals: Totals


def write_results(
    store: BatchStore,
    record: BatchRecord,
    run: Folder,
    parts: Iterable[Part],
    missing: Iterable[tuple[int, str]],
    *,
    status: Ending,
    now_s: int,
) -> Results:
    """Write both files; one without lines is left out. `missing` are row and id of the lines that
    were never executed, because the batch was "cancelled" or has "expired"."""
    names = {what: result_file_id(record.id, what) for what in (_OUTPUT, _ERRORS)}
    counts = {_OUTPUT: 0, _ERRORS: 0}
    totals = Totals()
    with ExitStack() as stack:
        writers = {
            what: stack.enter_context(PieceWriter(store.folder, name))
            for what, name in names.items()
        }

        def write(what: str, line: dict[str, Any] | str) -> None:
            text = line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)
            writers[what].write(text.encode() + b"\n")
            counts[what] += 1

        for part in parts:
            content = run.read(part.name)
            details = details_of(content)
            totals += details.totals
            for row in pq.read_table(pa.BufferReader(content)).to_pylist():
                write(_OUTPUT, _answered(record.id, row))
            if details.errors_file is not None:
                errors = pa.BufferReader(run.read(details.errors_file))
                for row in pq.read_table(errors).to_pylist():
                    write(_ERRORS, _refused(record.id, row))
        for index, custom_id in missing:
            write(_ERRORS, _missing(record.id, index, custom_id, status))
    ids = {
        what: _register(store, record, what, names[what], writers[what], now_s)
        for what in (_OUTPUT, _ERRORS)
    }
    return Results(
        completed=counts[_OUTPUT],
        failed=counts[_ERRORS],
        output_file_id=ids[_OUTPUT],
        error_file_id=ids[_ERRORS],
        totals=totals,
    )


def _register(
    store: BatchStore, record: BatchRecord, what: str, name: str, writer: PieceWriter, now_s: int
) -> str | None:
    if not writer.size_bytes:
        return None
    suffix = {_OUTPUT: "output", _ERRORS: "error"}[what]
    store.files.add(
        record.key_id,
        FileRecord(
            id=name,
            bytes=writer.size_bytes,
            created_at=now_s,
            filename=f"{record.id}_{suffix}.jsonl",
            purpose="batch_output",
            pieces=writer.pieces,
        ),
    )
    return name


def _answered(batch_id: str, row: dict[str, Any]) -> str:
    index = row["source_row"]
    head = json.dumps(
        {"id": line_id(batch_id, index, "batch_req_"), "custom_id": row[ID_COLUMN]},
        ensure_ascii=False,
    )
    request_id = line_id(batch_id, index, "req_")
    response = f'{{"status_code": 200, "request_id": "{request_id}", "body": {row["response"]}}}'
    return f'{head[:-1]}, "response": {response}, "error": null}}'


def _refused(batch_id: str, row: dict[str, Any]) -> dict[str, Any]:
    index = row["source_row"]
    status, body = refusal_of(row["error_message"])
    return {
        "id": line_id(batch_id, index, "batch_req_"),
        "custom_id": row[ID_COLUMN],
        "response": {
            "status_code": status,
            "request_id": line_id(batch_id, index, "req_"),
            "body": body,
        },
        "error": None,
    }


def _missing(batch_id: str, index: int, custom_id: str, status: str) -> dict[str, Any]:
    code, message = NEVER_RUN[status]
    return {
        "id": line_id(batch_id, index, "batch_req_"),
        "custom_id": custom_id,
        "response": None,
        "error": {"code": code, "message": message},
    }
