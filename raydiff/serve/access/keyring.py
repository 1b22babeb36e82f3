"""The keys in force: read again whenever their file changes."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from raydiff.errors import UsageError
from raydiff.serve.access.caller import Caller
from raydiff.serve.access.files import Stamp, read_keys, stamp_of
from raydiff.serve.access.keys import KeyEntry, hash_of, utc_now

_log = logging.getLogger(__name__)


class Keyring:
    """Finds the caller that a key stands for, by a file's content at most `reload_s` old.

    A changed file that cannot be read or is wrong leaves the keys as they were, and is logged.
    """

    def __init__(
        self,
        path: Path,
        *,
        reload_s: float,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Read the keys.

        Raises:
            UsageError: the file cannot be read or is wrong.
        """
        self._path = path
        self._reload_s = reload_s
        self._clock = clock
        self._now = now
        self._stamp = _stamp_or_none(path)
        self._keys = _in_force(read_keys(path))
        self._looked_s = clock()
        self._reading = asyncio.Lock()

    async def find(self, key: str) -> Caller | None:
        """The caller whose key this is, if it is one that has not expired."""
        if self._clock() - self._looked_s >= self._reload_s:
            await self._look()
        given, found = hash_of(key).encode(), None
        # all of them, whichever fits: the time tells nothing of which keys there are
        for digest, entry, caller in self._keys:
            if hmac.compare_digest(digest, given):
                found = (entry, caller)
        if found is None or found[0].expired(self._now()):
            return None
        return found[1]

    async def _look(self) -> None:
        """Read the file again if it changed. Requests wait, so that none is served by old keys."""
        async with self._reading:
            if self._clock() - self._looked_s < self._reload_s:
                return
            looked_s = self._clock()
            await asyncio.to_thread(self._read_if_changed)
            self._looked_s = looked_s

    def _read_if_changed(self) -> None:
        stamp = _stamp_or_none(self._path)
        if stamp == self._stamp:
            return
        # what is wrong is told once per change; a file caught half-written changes again
        self._stamp = stamp
        try:
            keys = read_keys(self._path)
        except UsageError as error:
            _log.error("%s The keys read before stay in force.", error)
            return
        self._keys = _in_force(keys)
        _log.warning("keys_file %s: changed; %d keys are in force.", self._path, len(keys))


def _in_force(entries: tuple[KeyEntry, ...]) -> tuple[tuple[bytes, KeyEntry, Caller], ...]:
    return tuple((entry.hash.encode(), entry, entry.caller()) for entry in entries)


def _stamp_or_none(path: Path) -> Stamp | None:
    try:
        return stamp_of(path)
    except OSError:
        return None
