"""A gateway's thread that looks after open batches."""

from __future__ import annotations

import logging
import threading

from raydiff.batches.keeper import Keeper

_log = logging.getLogger(__name__)


class Attendance:
    """Looks now and then, and at once when it is nudged."""

    def __init__(self, keeper: Keeper, *, every_s: float) -> None:
        self._keeper = keeper
        self._every_s = every_s
        self._nudged = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._attend, name="raydiff-batches", daemon=True)

    def start(self) -> None:
        """Begin looking."""
        self._thread.start()

    def nudge(self) -> None:
        """Look now."""
        self._nudged.set()

    def stop(self) -> None:
        """Look no more. What is being submitted now still is."""
        self._over = True
        self._nudged.set()

    def _attend(self) -> None:
        while not self._over:
            self._nudged.clear()
            try:
                self._keeper.look()
            except Exception as error:  # the store may be away; the thread must outlive that
                _log.warning("Open batches cannot be looked after now: %s", error)
            self._nudged.wait(self._every_s)
