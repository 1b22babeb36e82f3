"""Sees to it that every batch that has not ended has a job, whatever became of the last one.

Each gateway has one. Of several that notice a batch without a job, one submits it: a job's name
can be used once on a job server, and the next name is given out by the store. A head that was
restarted without its memory knows no jobs, and gets them again under the same names.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from raydiff.batches.ids import made_at_s
from raydiff.batches.jobs import Jobs
from raydiff.batches.store import BatchStore
from raydiff.errors import ClusterError, RaydiffError

_log = logging.getLogger(__name__)

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 300.0
"""Between a job that did not bring its batch to the end and the next one."""
ORPHAN_S = 3600.0
"""After which a batch without a record was never made: its gateway died in between."""


class Keeper:
    """Looks after the open batches of a store. Blocking: call it from a thread."""

    def __init__(
        self, store: BatchStore, jobs: Jobs, *, now: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._now = now

    def look(self) -> None:
        """See to every open batch once. What goes wrong with one does not concern the others."""
        for batch_id in self._store.open_ids():
            try:
                self.tend(batch_id)
            except ClusterError as error:
                _log.warning("Batch %s: %s", batch_id, error)
                return  # it is the server; the next look may find it
            except (RaydiffError, OSError, ValueError) as error:
                _log.warning("Batch %s cannot be looked after now: %s", batch_id, error)

    def tend(self, batch_id: str) -> None:
        """Submit a batch's job if it has none that may still bring it to its end.

        Raises:
            ClusterError: there is no job server that answers.
            StorageError: the store refused or is out of reach.
        """
        attempts = self._store.attempts(batch_id)
        number = len(attempts)
        if number:
            status = self._jobs.status(job_name(batch_id, number))
            if status == "running" or self._store.is_held(batch_id):
                return
            if status == "unknown":
                self._submit(batch_id, number)
                return
            if self._now() < attempts[-1] + pause_s(number):
                return
        state = self._store.find_open(batch_id)
        if state is None:
            if self._now() > made_at_s(batch_id) + ORPHAN_S:
                self._store.close(batch_id)  # whoever asked for it was told of no batch
        elif state.ended is not None:
            self._store.close(batch_id)  # its job died between its last two steps
        elif self._store.claim(batch_id, number + 1, self._now()):
            self._submit(batch_id, number + 1)

    def _submit(self, batch_id: str, number: int) -> None:
        self._jobs.submit(job_name(batch_id, number), batch_id)


def job_name(batch_id: str, number: int) -> str:
    """Of a batch's job, on the job server."""
    return f"raydiff-{batch_id}-{number}"


def pause_s(number: int) -> float:
    """How long after its submission a batch's job is followed by another, at the earliest."""
    return float(min(FIRST_PAUSE_S * 2.0 ** min(number, 20), LONGEST_PAUSE_S))
