"""The end of a run: every row accounted for, the report written, `_SUCCESS` last. No Ray here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from raydiff.corpus.attempts import ATTEMPTS_FOLDER
from raydiff.corpus.commit import (
    Part,
    PartDetails,
    read_details,
    remove_unnamed_errors,
    settle_parts,
)
from raydiff.corpus.directory import SUCCESS_NAME, RunDirectory
from raydiff.corpus.report import Session, finished_report
from raydiff.corpus.storage import Folder
from raydiff.errors import ClusterError

_THREADS = 16


def close(run: RunDirectory, session: Session) -> dict[str, Any]:
    """Check that every row is accounted for, write the report, and `_SUCCESS` last.

    Raises:
        ClusterError: a shard is not committed.
    """
    run.held.check()
    parts = settle_parts(run.folder)
    _require_complete(run, parts)
    remove_unnamed_errors(run.folder, parts)
    run.folder.remove(ATTEMPTS_FOLDER)
    details = _read_all_details(run.folder, parts.values())
    report = finished_report(run, parts, details, session)
    run.held.check()
    run.write_report(report)
    run.folder.put(SUCCESS_NAME, b"")
    return report


def _require_complete(run: RunDirectory, parts: Mapping[str, Part]) -> None:
    """Check from the names that every planned row is in exactly one committed part.

    Raises:
        ClusterError: a shard is missing or has other rows than planned.
    """
    wrong = [
        shard.shard_id
        for shard in run.plan.shards
        if (part := parts.get(shard.shard_id)) is None or part.rows + part.errors != shard.rows
    ]
    rows = sum(part.rows + part.errors for part in parts.values())
    if wrong or rows != run.inputs.rows:
        raise ClusterError(
            f"{len(wrong)} of {len(run.plan.shards)} shards are not committed ({wrong[:3]}); "
            f"{rows} of {run.inputs.rows} rows are done. Run the same command again to continue."
        )


def _read_all_details(folder: Folder, parts: Iterable[Part]) -> list[PartDetails]:
    """Metadata of every part; no rows are read."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda part: read_details(folder, part), parts))
