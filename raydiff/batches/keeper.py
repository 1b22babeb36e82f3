"""Sees to it that every batch that has not ended has a job, whatever became of the last one.

Each gateway has one. Of several that notice a batch without a job, one submits it: a job's name
can be used once on a job server, and the next name is given out by the store. A head that was
restarted without its memory knows no jobs, and gets them again under the same names.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

from raydiff.batches.ids import made_at_s
from raydiff.batches.jobs import Jobs
from raydiff.batches.store import BatchStore
from raydiff.errors import ClusterError, RaydiffError

_log = logging.getLogger(__name__)

_OF_ONE_BATCH = (RaydiffError, OSError, ValueError)

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
        self._owners: dict[str, str] = {}

    def look(self) -> None:
        """See to every open batch once. What goes wrong with one does not concern the others.

        At most `max_jobs` run at a time. Where more wait, keys take turns: next is the oldest
        batch of the key that has the fewest running.
        """
        open_ids = self._store.open_ids()
        self._owners = {name: self._owner(name) for name in open_ids}
        busy: Counter[str] = Counter()
        waiting: list[str] = []
        try:
            for batch_id in open_ids:
                if self._is_at_work(batch_id):
                    busy[self._owners[batch_id]] += 1
                else:
                    waiting.append(batch_id)
            while waiting and busy.total() < self._store.settings.max_jobs:
                batch_id = min(waiting, key=lambda name: (busy[self._owners[name]], name))
                waiting.remove(batch_id)
                if self._begin(batch_id):
                    busy[self._owners[batch_id]] += 1
        except ClusterError as error:
            _log.warning("Batches wait: %s", error)  # the next look may find the server

    def _is_at_work(self, batch_id: str) -> bool:
        """Whether a batch has a job, here or on another cluster over the same store."""
        try:
            number = self._store.attempts(batch_id).number
            running = number and self._jobs.status(job_name(batch_id, number)) == "running"
            return bool(running) or self._store.is_held(batch_id)
        except ClusterError:
            raise
        except _OF_ONE_BATCH as error:
            _log.warning("Batch %s cannot be looked after now: %s", batch_id, error)
            return True

    def _begin(self, batch_id: str) -> bool:
        """Submit a batch's job; whether there was one to submit now."""
        try:
            attempts = self._store.attempts(batch_id)
            if attempts.number:
                status = self._jobs.status(job_name(batch_id, attempts.number))
                if status == "unknown":
                    self._submit(batch_id, attempts.number)
                    return True
                if self._now() < attempts.last_s + pause_s(attempts.number):
                    return False
            if not self._is_open(batch_id):
                return False
            number = attempts.number + 1
            if self._store.claim(batch_id, number, self._now()):
                self._submit(batch_id, number)
            return True  # if another claimed it, that one submits it
        except ClusterError:
            raise
        except _OF_ONE_BATCH as error:
            _log.warning("Batch %s cannot be begun now: %s", batch_id, error)
            return False

    def _is_open(self, batch_id: str) -> bool:
        """Whether there is anything left to do; marks of batches without are removed."""
        state = self._store.find_open(batch_id)
        if state is None:
            if self._now() > made_at_s(batch_id) + ORPHAN_S:
                self._store.close(batch_id)  # whoever asked for it was told of no batch
            return False
        if state.ended is not None:
            self._store.close(batch_id)  # its job died between its last two steps
            return False
        return True

    def _owner(self, batch_id: str) -> str:
        return self._owners.get(batch_id) or self._store.owner(batch_id)

    def _submit(self, batch_id: str, number: int) -> None:
        self._jobs.submit(job_name(batch_id, number), batch_id)


def job_name(batch_id: str, number: int) -> str:
    """Of a batch's job, on the job server."""
    return f"raydiff-{batch_id}-{number}"


def pause_s(number: int) -> float:
    """How long after its submission a batch's job is followed by another, at the earliest."""
    return float(min(FIRST_PAUSE_S * 2.0 ** min(number, 20), LONGEST_PAUSE_S))
