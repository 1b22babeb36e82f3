"""Ends a batch's run when it is cancelled or its time is up: as Ctrl-C would."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

StopReason = Literal["cancelled", "expired"]

_log = logging.getLogger(__name__)


class Stopper:
    """Asks, on a thread of its own, whether to stop."""

    def __init__(self, ask: Callable[[], StopReason | None], *, every_s: float) -> None:
        self._ask = ask
        self._every_s = every_s
        self._over = threading.Event()
        self.reason: StopReason | None = None
        """Why the block was interrupted, if it was."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The block ends, as if it were done, once there is a reason to stop. On the main thread
        only."""
        thread = threading.Thread(target=self._watch, name="raydiff-stopper", daemon=True)
        thread.start()
        try:
            yield
        except KeyboardInterrupt:
            if self.reason is None:
                raise
        finally:
            self._over.set()
            self._settle(thread)

    def _watch(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                reason = self._ask()
            except Exception as error:  # the store may be away for a while
                _log.warning("Whether to stop cannot be known now: %s", error)
                continue
            if reason is not None:
                self.reason = reason
                signal.pthread_kill(_main_thread_id(), signal.SIGINT)
                return

    def _settle(self, thread: threading.Thread) -> None:
        """Wait for the thread; its signal may arrive here, after the block."""
        while thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt:
                if self.reason is None:
                    raise


def _main_thread_id() -> int:
    ident = threading.main_thread().ident
    assert ident is not None
    return ident
