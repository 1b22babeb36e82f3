"""The end of a run: every row accounted for, the report written, `_SUCCESS` last. No Ray here."""

from __future__ import annotations

from typing import Any

from raydiff.corpus.accounting import settle_ledger
from raydiff.corpus.attempts import ATTEMPTS_FOLDER
from raydiff.corpus.directory import RunDirectory
from raydiff.corpus.errors_files import remove_unnamed_errors
from raydiff.corpus.ledger import shard_table
from raydiff.corpus.parts import Committed, settle_parts
from raydiff.corpus.report import Session, finished_report
from raydiff.corpus.runs import SUCCESS_NAME
from raydiff.errors import ClusterError

_NAMED = 3


def close(run: RunDirectory, session: Session) -> dict[str, Any]:
    """Check that every row is accounted for, write the report, and `_SUCCESS` last.

    Names say how many rows there are, the ledger the rest; a part is opened only if its report
    was lost with an earlier driver.

    Raises:
        ClusterError: a shard is not committed.
    """
    run.held.check()
    committed = settle_parts(run.folder, run.plan)
    _require_complete(run, committed)
    ledger = settle_ledger(run.folder, run.ledger, committed)
    remove_unnamed_errors(run.folder, committed)
    run.folder.remove(ATTEMPTS_FOLDER)
    report = finished_report(run, committed, shard_table(ledger), session)
    run.held.check()
    run.write_report(report)
    run.folder.put(SUCCESS_NAME, b"")
    return report


def _require_complete(run: RunDirectory, committed: Committed) -> None:
    """Check that every planned row is in exactly one committed part.

    Raises:
        ClusterError: a shard is missing. Parts with other rows than planned are refused before.
    """
    missing = committed.pending
    if missing:
        ids = [shard.shard_id for shard in missing[:_NAMED]]
        raise ClusterError(
            f"{len(missing)} of {len(run.plan.shards)} shards are not committed ({ids}); "
            f"{committed.documents} of {run.plan.rows} rows are done. Run the same command again "
            "to continue."
        )
    assert committed.documents == run.plan.rows, (committed.documents, run.plan.rows)
