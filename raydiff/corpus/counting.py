"""Counts committed work in the metrics.

It happens in the driver: Ray Data kills a worker after its last shard, before Ray exports what
it counted. A shard's report also reaches the driver once, however often the shard was tried.
"""

from __future__ import annotations

from raydiff.corpus.commit import ShardReport
from raydiff.metrics import DOCUMENTS, SHARDS, Backend


class CommitCounter:
    """Adds each committed shard to the catalogue's counters."""

    def __init__(self, backend: Backend, model: str) -> None:
        self._backend = backend
        self._model = {"model": model}

    def add(self, report: ShardReport) -> None:
        """Count one shard and its documents."""
        for outcome, amount in (("summarized", report.rows), ("failed", report.errors)):
            if amount:
                self._backend.add(DOCUMENTS, amount, {**self._model, "outcome": outcome})
        self._backend.add(SHARDS, 1, self._model)
