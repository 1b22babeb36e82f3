"""When a run that fails too many documents is ended."""

from __future__ import annotations

from raydiff.errors import TooManyFailures

LEAST_DOCUMENTS = 100
"""Documents that must be done before their failures say something about the run."""


class FailureLimit:
    """Watches the share of failed documents among all that the run has committed."""

    def __init__(self, max_failed_fraction: float, *, documents: int, failed: int) -> None:
        """Earlier starts committed `documents`, `failed` of them as failures."""
        self._limit = max_failed_fraction
        self._documents = documents
        self._failed = failed

    def add(self, documents: int, failed: int) -> None:
        """Take a committed shard.

        Raises:
            TooManyFailures: more than the allowed share failed.
        """
        self._documents += documents
        self._failed += failed
        if self._documents >= LEAST_DOCUMENTS and self._failed > self._limit * self._documents:
            raise TooManyFailures(
                f"{self._failed} of {self._documents} documents failed, more than "
                f"--max-failed-fraction {self._limit:g} allows. Committed shards are kept; the "
                "errors say what went wrong. Run the same command with a larger fraction to "
                "continue."
            )
