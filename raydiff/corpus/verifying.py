"""Checks a run directory: counts against the plan, files against checksums, rows against rows.

Everything is read once, a few files at a time; memory does not grow with the run, but for forty
bytes a part and what the ledger takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from raydiff.corpus.accounting import settle_ledger
from raydiff.corpus.checking import CheckedPart, Fault, PartChecker
from raydiff.corpus.errors_files import unnamed_errors
from raydiff.corpus.files import some_names
from raydiff.corpus.ids import RepeatedIds
from raydiff.corpus.ledger import (
    LEDGER_FOLDER,
    LedgerWriter,
    damaged_files,
    find_rows,
    read_ledger,
)
from raydiff.corpus.parts import Committed, Listing, Part, list_parts
from raydiff.corpus.runs import REPORT_NAME, SUCCESS_NAME, SavedRun, write_report_file
from raydiff.storage import hold

_THREADS = 16
_BYTES_IN_FLIGHT = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a check of a run found."""

    faults: tuple[Fault, ...]
    shards: int
    committed: int
    rows: int
    failed: int
    repeated_ids: int
    """Rows whose id an earlier row has."""

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong. A run that is not finished can be sound."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "sound": self.sound,
            "faults": [fault.to_dict() for fault in self.faults],
            "shards": self.shards,
            "committed": self.committed,
            "rows": self.rows,
            "failed": self.failed,
            "repeated_ids": self.repeated_ids,
        }


def verify(run: SavedRun, *, rebuild_ledger: bool = False) -> Verification:
    """Check all that can be checked without the input.

    Raises:
        RunConflict: a driver has the run, and the ledger was to be rebuilt.
    """
    folder, plan = run.folder, run.plan
    with hold(folder) if rebuild_ledger else nullcontext():
        listing = list_parts(folder, plan)
        committed = listing.committed
        faults = [*_listing_faults(listing), *_report_faults(run, committed)]
        faults += [
            Fault(kind="errors", file=name, message="no part names it")
            for name in _unnamed(run, committed)
        ]
        faults += [
            Fault(kind="ledger", file=name, message="it cannot be read; resuming rebuilds it")
            for name in ([] if rebuild_ledger else damaged_files(folder))
        ]
        if rebuild_ledger:
            folder.make(LEDGER_FOLDER)
            ledger = settle_ledger(folder, LedgerWriter(folder), committed, rebuild=True)
        else:
            ledger = read_ledger(folder)
        with RepeatedIds() as repeated:
            faults += _check_parts(run, committed, ledger, repeated)
            count = repeated.count()
    return Verification(
        faults=tuple(faults),
        shards=len(plan.shards),
        committed=committed.shards,
        rows=committed.rows,
        failed=committed.failed,
        repeated_ids=count,
    )


def _listing_faults(listing: Listing) -> Iterator[Fault]:
    for name in listing.foreign:
        yield Fault(kind="foreign", file=name, message="it is not a part of this run's plan")
    for name in listing.superseded:
        message = "its rows are in another part too; resuming or compacting the run deletes it"
        yield Fault(kind="doubled", file=name, message=message)


def _unnamed(run: SavedRun, committed: Committed) -> list[str]:
    """Errors files too many. Before the end of a run there may be some: of attempts that did not
    get to their commit, or that did since the parts were listed."""
    if not run.folder.exists(SUCCESS_NAME):
        return []
    try:
        return unnamed_errors(run.folder, committed)
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return []  # the part that should name it is damaged, and reported as such


def _report_faults(run: SavedRun, committed: Committed) -> Iterator[Fault]:
    """Check that `_SUCCESS` and the report say what the parts do."""
    pending = committed.pending
    if pending and run.folder.exists(SUCCESS_NAME):
        ids = some_names([shard.shard_id for shard in pending[:4]])
        message = f"{len(pending)} of {len(run.plan.shards)} shards are not committed ({ids})"
        yield Fault(kind="incomplete", file=SUCCESS_NAME, message=message)
    report = run.report()
    if report.get("status") != "done" or pending:
        return
    actual = {"rows": run.plan.rows, "failed": committed.failed, "shards": len(run.plan.shards)}
    for key, value in actual.items():
        if report.get(key) != value:
            message = f"{key} is {report.get(key)}, the parts say {value}"
            yield Fault(kind="report", file=REPORT_NAME, message=message)


def _check_parts(
    run: SavedRun, committed: Committed, ledger: pa.Table, repeated: RepeatedIds
) -> Iterator[Fault]:
    checker = PartChecker(
        run.folder,
        run.plan,
        run.plan.layout.get("id"),
        ledger_complete=run.folder.exists(SUCCESS_NAME),
    )
    schema: pa.Schema | None = None
    first = ""
    for part, checked in _checked(checker, committed, ledger):
        yield from checked.faults
        repeated.add(checked.ids)
        if checked.schema is None:
            continue
        if schema is None:
            schema, first = checked.schema, part.name
        elif checked.schema != schema:
            message = f"its columns are not those of {first}: {_difference(schema, checked.schema)}"
            yield Fault(kind="columns", file=part.name, message=message)


def _difference(ours: pa.Schema, theirs: pa.Schema) -> str:
    a, b = ({f"{f.name}: {f.type}" for f in schema} for schema in (ours, theirs))
    return "; ".join(sorted(a ^ b)) or "their order or nullability differs"


def _checked(
    checker: PartChecker, committed: Committed, ledger: pa.Table
) -> Iterator[tuple[Part, CheckedPart]]:
    """Check parts, several at once where they are small; the results in order."""
    at = find_rows(ledger, committed.table)
    largest = int(committed.table["size_bytes"].max()) if len(committed) else 1
    threads = max(1, min(_THREADS, _BYTES_IN_FLIGHT // max(largest, 1)))
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[tuple[Part, Future[CheckedPart]]] = deque()
        for index, part in enumerate(committed):
            row = ledger.slice(int(at[index]), 1).to_pylist()[0] if at[index] >= 0 else None
            pending.append((part, pool.submit(checker.check, part, row)))
            if len(pending) >= 2 * threads:
                yield _result(pending)
        while pending:
            yield _result(pending)


def _result(pending: deque[tuple[Part, Future[CheckedPart]]]) -> tuple[Part, CheckedPart]:
    part, future = pending.popleft()
    return part, future.result()


def record_repeated_ids(run: SavedRun, found: Verification) -> bool:
    """Write the number of repeated ids into the report of a finished run that could not count
    them when it began; returns whether it did.

    Raises:
        RunConflict: a driver has the run.
    """
    report = run.report()
    if report.get("status") != "done" or report.get("repeated_ids") is not None:
        return False
    if found.committed != found.shards:
        return False
    with hold(run.folder) as held:
        held.check()
        write_report_file(run.folder, {**report, "repeated_ids": found.repeated_ids})
    return True
