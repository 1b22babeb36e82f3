"""A full disk is waited for: somebody may make room, and no document is to blame."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

from raydiff.errors import StorageError

PATIENCE_S = 60.0
"""How long a full disk is waited for."""
_PAUSE_S = 1.0
_FULL = (errno.ENOSPC, errno.EDQUOT)

Result = TypeVar("Result")


def when_there_is_room(
    write: Callable[[], Result],
    *,
    patience_s: float = PATIENCE_S,
    on_wait: Callable[[], None] = lambda: None,
) -> Result:
    """What `write` returns, tried again while the disk is full; `on_wait` is called meanwhile.

    Raises:
        StorageError: the disk stayed full.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return write()
        except OSError as error:
            if error.errno not in _FULL:
                raise
            if time.monotonic() >= deadline:
                raise StorageError(
                    f"output: {error.strerror} for {patience_s:.0f} s. Committed shards are "
                    "kept; make room and run the same command again to continue."
                ) from error
        on_wait()
        time.sleep(_PAUSE_S)
