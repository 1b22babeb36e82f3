"""What a run directory says of its run: how far it is, how fast, what failed and why.

Names and the ledger are read, and a few errors files for examples; no document's text is shown.
Safe while a driver is at work.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.config import CorpusSettings
from raydiff.corpus.accounting import sum_error_types, sum_totals
from raydiff.corpus.ledger import read_ledger, shard_table
from raydiff.corpus.parts import Committed, list_parts
from raydiff.corpus.runs import SUCCESS_NAME, SavedRun
from raydiff.corpus.shards import Integers
from raydiff.errors import StorageError
from raydiff.storage import Folder, find_holder

RECENT_S = 600.0
"""Rates are those of the last minutes before the last commit."""
EXAMPLES = 3
"""Messages shown of each type of error."""
_MESSAGE = 200
_FILES = 20
_TRIES = 5


def show(run: SavedRun) -> dict[str, Any]:
    """The state of a run, as JSON values."""
    listing = list_parts(run.folder, run.plan)
    committed = listing.committed
    ledger = _read_ledger(run.folder)
    shards = shard_table(ledger)
    holder = find_holder(run.folder)
    report = run.report()
    totals = sum_totals(shards)
    rates = _recent_rates(shards)
    left = run.plan.rows - committed.documents
    return {
        "run": run.folder.uri,
        "status": _status(SUCCESS_NAME in listing.others, holder, committed),
        "driver": holder,
        "reason": report.get("reason") if committed.pending and holder is None else None,
        "input": run.plan.settings.get("input"),
        "model": run.plan.settings.get("model"),
        "task": run.plan.settings.get("task", {}).get("kind"),
        "files": len(run.plan.files),
        "documents": run.plan.rows,
        "done": committed.documents,
        "failed": committed.failed,
        "shards": len(run.plan.shards),
        "committed": committed.shards,
        "parts": len(committed),
        "part_bytes": committed.size_bytes,
        "prompt_tokens": totals.prompt_tokens,
        "output_tokens": totals.completion_tokens,
        "forwards": totals.forwards,
        "duplicates": totals.duplicates,
        **rates,
        "left_s": _left_s(left, rates["documents_per_s"]),
        "error_types": sum_error_types(shards),
        "error_examples": _examples(run.folder, ledger),
        "repeated_ids": report.get("repeated_ids", run.plan.repeated_ids),
        "appends": list(run.plan.appends),
        "settings": _chosen(run.plan.settings),
    }


def _status(success: bool, holder: str | None, committed: Committed) -> str:
    if holder is not None:
        return "running"
    if committed.pending:
        return "stopped" if committed.shards else "not begun"
    return "done" if success else "to be closed"


def _read_ledger(folder: Folder) -> pa.Table:
    """The ledger; a driver may merge and delete a file between the listing and the reading."""
    for _ in range(_TRIES - 1):
        try:
            return read_ledger(folder)
        except FileNotFoundError:
            continue
    return read_ledger(folder)


def _recent_rates(shards: pa.Table) -> dict[str, float]:
    finished = shards["finished_s"].to_numpy()
    if not finished.size:
        return {"documents_per_s": 0.0, "output_tokens_per_s": 0.0}
    recent = finished > finished.max() - RECENT_S
    started = shards["started_s"].to_numpy()
    seconds = max(_time_at_work(started[recent], finished[recent]), 1e-3)
    documents = (shards["rows"].to_numpy() + shards["errors"].to_numpy())[recent].sum()
    tokens = shards["completion_tokens"].to_numpy()[recent].sum()
    return {
        "documents_per_s": round(float(documents) / seconds, 3),
        "output_tokens_per_s": round(float(tokens) / seconds, 3),
    }


def _time_at_work(started: Integers, finished: Integers) -> float:
    """Seconds in which any of some shards was in hand: without the pauses between starts."""
    order = np.argsort(started)
    begins, ends = started[order], np.maximum.accumulate(finished[order])
    covered = np.maximum(begins, np.concatenate([[-np.inf], ends[:-1]]))
    return float(np.maximum(ends - covered, 0.0).sum())


def _left_s(documents: int, documents_per_s: float) -> float | None:
    if not documents:
        return 0.0
    return round(documents / documents_per_s, 1) if documents_per_s else None


def _examples(folder: Folder, ledger: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """A few messages of each type of error, from the errors files of the latest parts."""
    named = ledger.filter(pa.array(np.asarray(ledger["errors_file"].is_valid())))
    order = np.argsort(named["finished_ms"].to_numpy(), kind="stable")[::-1][:_FILES]
    examples: dict[str, list[dict[str, Any]]] = defaultdict(list)
    names = named["errors_file"].to_pylist()
    for index in order:
        for row in _error_rows(folder, str(names[index])):
            found = examples[row["error_type"]]
            if len(found) < EXAMPLES:
                message = str(row["error_message"])[:_MESSAGE]
                place = {"source_file": row["source_file"], "source_row": row["source_row"]}
                found.append({"message": message, **place})
    return dict(sorted(examples.items()))


def _error_rows(folder: Folder, name: str) -> list[dict[str, Any]]:
    columns = ["error_type", "error_message", "source_file", "source_row"]
    try:
        content = pa.BufferReader(folder.read(name))
        rows: list[dict[str, Any]] = pq.read_table(content, columns=columns).to_pylist()
    except (OSError, StorageError, pa.ArrowException):
        return []  # damaged, or compacted just now: examples are no check
    return rows


def _chosen(saved: dict[str, Any]) -> dict[str, Any]:
    """The settings that are not the usual ones."""
    usual = CorpusSettings(input="", output="").model_dump(mode="json")
    return {name: value for name, value in saved.items() if value != usual.get(name)}
