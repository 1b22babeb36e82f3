"""The session as it goes on: counted on one thread, shown from two."""

from __future__ import annotations

import threading
from collections.abc import Callable

from raydiff.corpus.commit import ShardReport
from raydiff.corpus.report import Session
from raydiff.corpus.sizing import Fleet


class Live:
    """Calls `on_progress` after each commit, and when the replicas were looked at."""

    def __init__(self, session: Session, on_progress: Callable[[Session], None]) -> None:
        self.session = session
        self._on_progress = on_progress
        self._lock = threading.Lock()

    def commit(self, report: ShardReport) -> None:
        """Another shard is committed."""
        with self._lock:
            self.session.add(report)
            self._on_progress(self.session)

    def look(self, fleet: Fleet | None) -> None:
        """Time has passed; the replicas answered, or did not."""
        with self._lock:
            if fleet is not None:
                self.session.replicas = fleet.running
            self._on_progress(self.session)
