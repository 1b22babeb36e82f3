"""Counts on disk how often shards were begun, so that one that kills its worker comes to an end.

Ray restarts workers without limit, which is right for a machine that went away and wrong for a
shard that exhausts memory each time. Memory of the attempts must outlive the worker.
"""

from __future__ import annotations

from raydiff.corpus.plan import Shard
from raydiff.corpus.storage import Folder

ATTEMPTS_FOLDER = "attempts"


class Attempts:
    """Attempts since the driver started; a shard has files here only while it is in hand."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def begin(self, shard: Shard) -> int:
        """Note an attempt; returns how many came before it."""
        before = self._names(shard)
        self._folder.put(f"{ATTEMPTS_FOLDER}/{shard.shard_id}-{len(before):03d}", b"")
        return len(before)

    def end(self, shard: Shard) -> None:
        """Forget a shard's attempts."""
        for name in self._names(shard):
            self._folder.delete(name)

    def _names(self, shard: Shard) -> list[str]:
        prefix = f"{ATTEMPTS_FOLDER}/{shard.shard_id}-"
        return [name for name in self._folder.names(ATTEMPTS_FOLDER) if name.startswith(prefix)]
