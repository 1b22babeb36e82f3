"""A full disk is waited for: somebody may make room, and no document is to blame."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from raydiff.errors import StorageError

PATIENCE_S = 120.0
_PAUSE_S = 1.0
_FULL = (errno.ENOSPC, errno.EDQUOT)

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Room:
    """How writers wait for room on a disk."""

    patience_s: float = PATIENCE_S
    on_wait: Callable[[], None] = lambda: None
    """Called now and then while a full disk is waited for."""

    def wait_for(self, write: Callable[[], Result]) -> Result:
        """What `write` returns, tried again while the disk is full.

        Raises:
            StorageError: the disk stayed full.
        """
        deadline_s = time.monotonic() + self.patience_s
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                if time.monotonic() >= deadline_s:
                    raise self._full(error) from error
            self.on_wait()
            time.sleep(_PAUSE_S)

    def _full(self, error: OSError) -> StorageError:
        return StorageError(
            f"output: {error.strerror} for {self.patience_s:.0f} s. Committed shards are kept; "
            "make room and run the same command again to continue."
        )
