"""What a batch's job does: checks the input, runs its lines through the app, writes the results.

It may be killed at any moment and begun again by another process: every step finds what the last
one left. Two at the same time are kept apart by the hold on the run's directory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.batches.ids import run_seed
from raydiff.batches.pieces import read_lines
from raydiff.batches.records import BatchRecord, BatchState, Ended, Ending, LineError, Validated
from raydiff.batches.results import BODY_COLUMN, ID_COLUMN, write_results
from raydiff.batches.stopping import Stopper, StopReason
from raydiff.batches.store import BatchStore
from raydiff.batches.validation import Input, read_input
from raydiff.config import CorpusSettings, TaskSettings
from raydiff.corpus.parts import Part
from raydiff.corpus.planning import PLAN_NAME
from raydiff.corpus.runs import SavedRun, hold_run
from raydiff.errors import ClusterError
from raydiff.request import Decoding

_log = logging.getLogger(__name__)

INPUT_NAME = "lines.parquet"

Execute = Callable[[CorpusSettings, str], None]
"""Runs or continues a corpus run on the Serve application of this name."""


def drive(
    store: BatchStore, batch_id: str, execute: Execute, *, now: Callable[[], float] = time.time
) -> BatchState | None:
    """Take a batch to its end; returns how it ended, or `None` if it had ended before.

    Raises:
        ClusterError: the run could not be brought to its end; it can be continued.
        RunConflict: another process has it.
    """
    state = store.find_open(batch_id)
    if state is None:
        _log.info("Batch %s is not open.", batch_id)
        return None
    if state.ended is None:
        _Drive(store, state.record, execute, now).through(state.validated)
    else:
        store.close(batch_id)
    return store.find(state.record.key_id, batch_id)


def run_on_cluster(settings: CorpusSettings, app_name: str) -> None:
    """Run or continue a corpus run on an app of the cluster that this process is connected to.

    Raises:
        ClusterError: it could not be brought to its end; it can be continued.
        RunConflict: another process has it.
    """
    from raydiff.corpus.closing import close
    from raydiff.corpus.directory import open_run
    from raydiff.corpus.report import Session
    from raydiff.corpus.run import execute

    with open_run(settings, Decoding()) as run:
        if run.pending:
            execute(run, lambda session: None, app_name=app_name)
        elif not run.finished:
            close(run, Session())


class _Drive:
    """One batch in the hands of this process."""

    def __init__(
        self, store: BatchStore, record: BatchRecord, execute: Execute, now: Callable[[], float]
    ) -> None:
        self._store = store
        self._record = record
        self._execute = execute
        self._now = now

    def through(self, validated: Validated | None) -> None:
        """From wherever it is to its end."""
        validated = validated or self._validate()
        if validated is None:
            return
        stop = self._why_stop()
        if stop is None:
            settings = self._settings(validated)
            stopper = Stopper(self._why_stop, every_s=self._store.settings.poll_s / 2)
            with stopper.watching():
                self._execute(settings, self._record.app_name)
            stop = stopper.reason
        self._finish(validated, stop)

    def _why_stop(self) -> StopReason | None:
        if self._store.is_cancelled(self._record.id):
            return "cancelled"
        return "expired" if self._now() >= self._record.expires_at else None

    def _validate(self) -> Validated | None:
        """Check the input and lay it out for the run; `None` if that is the batch's end."""
        record = self._record
        file = self._store.files.find(record.key_id, record.input_file_id)
        if file is None:
            message = f"input_file_id: file {record.input_file_id!r} was deleted."
            error = LineError(code="file_not_found", message=message, param="input_file_id")
            self._fail([error])
            return None
        lines = read_lines(self._store.files.content(file))
        found = read_input(lines, record.endpoint, record.models, self._store.settings)
        if found.errors:
            self._fail(found.errors)
            return None
        self._lay_out(found)
        validated = Validated(at=self._time(), total=len(found.requests), model=found.model)
        self._store.validated(record.id, validated)
        return validated

    def _lay_out(self, found: Input) -> None:
        columns = {
            ID_COLUMN: pa.array([r.custom_id for r in found.requests], pa.large_string()),
            BODY_COLUMN: pa.array([r.body for r in found.requests], pa.large_string()),
        }
        sink = pa.BufferOutputStream()
        rows = self._store.settings.shard_lines
        pq.write_table(pa.table(columns), sink, compression="zstd", row_group_size=rows)
        folder = self._store.input_folder(self._record.id)
        folder.make()
        folder.put(INPUT_NAME, sink.getvalue())

    def _settings(self, validated: Validated) -> CorpusSettings:
        record, settings = self._record, self._store.settings
        return CorpusSettings(
            input=self._store.input_folder(record.id).uri,
            output=self._store.run_folder(record.id).uri,
            model=record.models[validated.model],
            served_as=validated.model,
            tenant=record.key_id,
            text_column=BODY_COLUMN,
            id_column=ID_COLUMN,
            shard_rows=settings.shard_lines,
            documents_per_call=settings.lines_per_call,
            seed=run_seed(record.id),
            task=TaskSettings(
                kind="request",
                endpoint=record.endpoint,
                fingerprint=record.fingerprints[validated.model],
            ),
            storage=settings.storage,
            shared_filesystem=settings.shared_filesystem,
            dedupe=False,
        )

    def _finish(self, validated: Validated, stop: StopReason | None) -> None:
        """Write the results, while nobody else writes to the run."""
        folder = self._store.run_folder(self._record.id)
        if not folder.exists(PLAN_NAME):
            self._end(validated, (), range(validated.total), stop)
            return
        with hold_run(SavedRun.load(folder.uri, self._store.settings.storage)) as held:
            missing = [row for shard in held.committed.pending for _, row in shard.places()]
            self._end(validated, tuple(held.committed), missing, stop)

    def _end(
        self,
        validated: Validated,
        parts: tuple[Part, ...],
        missing: range | list[int],
        stop: StopReason | None,
    ) -> None:
        record = self._record
        if missing and stop is None:
            raise ClusterError(f"{len(missing)} lines of batch {record.id} are not done.")
        status: Ending = stop or "completed"
        self._store.finalizing(record.id, self._time())
        results = write_results(
            self._store,
            record,
            self._store.run_folder(record.id),
            parts,
            self._named(missing),
            status=status,
            now_s=self._time(),
        )
        assert results.completed + results.failed == validated.total, results
        self._store.end(
            record.id,
            Ended(
                at=self._time(),
                status=status,
                total=validated.total,
                completed=results.completed,
                failed=results.failed,
                prompt_tokens=results.totals.prompt_tokens,
                output_tokens=results.totals.completion_tokens,
                output_file_id=results.output_file_id,
                error_file_id=results.error_file_id,
            ),
        )

    def _named(self, rows: range | list[int]) -> Iterator[tuple[int, str]]:
        if not rows:
            return
        with self._store.input_folder(self._record.id).open(INPUT_NAME) as stream:
            ids = pq.read_table(stream, columns=[ID_COLUMN]).column(ID_COLUMN).to_pylist()
        for row in rows:
            yield row, str(ids[row])

    def _fail(self, errors: list[LineError]) -> None:
        ended = Ended(at=self._time(), status="failed", errors=tuple(errors))
        self._store.end(self._record.id, ended)

    def _time(self) -> int:
        return int(self._now())
