"""When a run that goes wrong is ended, so that it does not turn a corpus into errors."""

from __future__ import annotations

from raydiff.corpus.commit import ShardReport
from raydiff.errors import TooManyFailures

LEAST_DOCUMENTS = 100
"""Documents that must be done before their failures say something about the run."""
LEAST_GIVEN_UP = 3
"""Whole shards that may be given up because their workers died, whatever the run's size."""
_GIVEN_UP_SHARE = 0.1


class FailureLimit:
    """Watches the share of failed documents among all that the run has committed."""

    def __init__(self, max_failed_fraction: float, *, documents: int, failed: int) -> None:
        """Earlier starts committed `documents`, `failed` of them as failures."""
        self._limit = max_failed_fraction
        self._documents = documents
        self._failed = failed
        self._shards = 0
        self._given_up = 0

    def add(self, report: ShardReport) -> None:
        """Take a committed shard.

        Raises:
            TooManyFailures: more than the allowed share failed, or so many whole shards were
                given up that their workers must be to blame.
        """
        self._documents += report.rows + report.errors
        self._failed += report.errors
        if self._documents >= LEAST_DOCUMENTS and self._failed > self._limit * self._documents:
            raise TooManyFailures(
                f"{self._failed} of {self._documents} documents failed, more than "
                f"--max-failed-fraction {self._limit:g} allows. Committed shards are kept; the "
                "errors say what went wrong. Run the same command with a larger fraction to "
                "continue."
            )
        self._shards += 1
        died = report.error_types.get("WorkerDied", 0)
        self._given_up += 0 < died == report.errors + report.rows
        if self._given_up > max(LEAST_GIVEN_UP, _GIVEN_UP_SHARE * self._shards):
            raise TooManyFailures(
                f"{self._given_up} of {self._shards} shards were given up because their workers "
                "kept dying, more than documents can be to blame for. Look at the workers' logs "
                "and memory, then run the same command again to continue."
            )
