"""One index of results for all shards of a run: each content is generated once.

A shard claims the contents of its documents before it generates them. What another shard has
claimed it waits for; when that one fails, or is not heard of for a while, the claim is free for
whoever asks next. Results are exact over one start of a run, whatever its size: they lie in a
database file, of which memory holds a bounded number of pages.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Answer = bytes | Literal["yours", "taken"]
"""A finished result, or who generates it: the one who asked, or another."""

LEASE_S = 120.0
_CACHE_KIB = 16 * 1024


class SharedResults(Protocol):
    """Where a shard's worker learns what others have generated."""

    async def claim(self, owner: str, keys: Sequence[bytes]) -> list[Answer]:
        """What is known of each content; those that are "yours" are promised by it."""

    async def settle(
        self, owner: str, results: Mapping[bytes, bytes], failed: Sequence[bytes]
    ) -> None:
        """Keep a promise, or give it up."""


class NothingShared:
    """Every shard for itself."""

    async def claim(self, owner: str, keys: Sequence[bytes]) -> list[Answer]:
        """All are the caller's."""
        return ["yours"] * len(keys)

    async def settle(
        self, owner: str, results: Mapping[bytes, bytes], failed: Sequence[bytes]
    ) -> None:
        """Nobody is told."""


@dataclass
class _Owner:
    heard_s: float
    keys: set[bytes] = field(default_factory=set)


class ResultIndex:
    """The index. Its methods may be called from several threads, one at a time goes on.

    Owners are names of shards: a shard that is tried again on another worker has what its first
    try had claimed. A full disk ends the collecting of results, not the run: what is not there
    is generated again, to the same text.
    """

    def __init__(
        self, *, lease_s: float = LEASE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """The file has no name: it is gone with the process, however that ends. It lies where the
        system has its temporary files (SQLITE_TMPDIR, TMPDIR)."""
        self._lease_s = lease_s
        self._clock = clock
        self._claims: dict[bytes, str] = {}
        self._owners: dict[str, _Owner] = {}
        """Those with claims."""
        self._full = False
        self._lock = threading.Lock()
        self._database = _open()

    @property
    def size_bytes(self) -> int:
        """Of the file."""
        pages, size = (self._pragma(name) for name in ("page_count", "page_size"))
        return pages * size

    def claim(self, owner: str, keys: Sequence[bytes]) -> list[Answer]:
        """The results of contents, where there are some. The others are the owner's from now on,
        unless they are another's whose lease has not ended."""
        with self._lock:
            self._renew(owner)
            return [self._answer(owner, key) for key in keys]

    def settle(self, owner: str, results: Mapping[bytes, bytes], failed: Sequence[bytes]) -> None:
        """Store results; contents that failed are free to be claimed by others."""
        with self._lock:
            self._renew(owner)
            self._store(results)
            own = [key for key in failed if self._claims.get(key) == owner]
            for key in (*results, *own):
                self._free(key)

    def renew(self, owner: str) -> None:
        """The owner is still at work."""
        with self._lock:
            self._renew(owner)

    def forget(self, owner: str) -> None:
        """The owner is done, or dead: what it claimed is free."""
        with self._lock:
            gone = self._owners.pop(owner, None)
            for key in gone.keys if gone else ():
                del self._claims[key]

    def close(self) -> None:
        """Give the file's room back."""
        with self._lock:
            self._database.close()

    def _pragma(self, name: str) -> int:
        with self._lock:
            return int(self._database.execute(f"PRAGMA {name}").fetchone()[0])

    def _answer(self, owner: str, key: bytes) -> Answer:
        row = self._database.execute("SELECT result FROM results WHERE key = ?", (key,)).fetchone()
        if row is not None:
            return bytes(row[0])
        holder = self._claims.get(key, owner)
        if holder != owner and self._clock() - self._owners[holder].heard_s < self._lease_s:
            return "taken"
        self._free(key)
        self._claims[key] = owner
        self._owners.setdefault(owner, _Owner(self._clock())).keys.add(key)
        return "yours"

    def _free(self, key: bytes) -> None:
        holder = self._claims.pop(key, None)
        if holder is not None:
            self._owners[holder].keys.remove(key)
            if not self._owners[holder].keys:
                del self._owners[holder]

    def _renew(self, owner: str) -> None:
        if owner in self._owners:
            self._owners[owner].heard_s = self._clock()

    def _store(self, results: Mapping[bytes, bytes]) -> None:
        if self._full:
            return
        try:
            with self._database:
                self._database.executemany(
                    "INSERT OR IGNORE INTO results VALUES (?, ?)", list(results.items())
                )
        except sqlite3.OperationalError:
            self._full = True


def _open() -> sqlite3.Connection:
    database = sqlite3.connect("", check_same_thread=False)
    for pragma in (
        "journal_mode = MEMORY",
        "synchronous = OFF",
        "locking_mode = EXCLUSIVE",
        f"cache_size = -{_CACHE_KIB}",
    ):
        database.execute(f"PRAGMA {pragma}")
    database.execute(
        "CREATE TABLE results (key BLOB PRIMARY KEY, result BLOB NOT NULL) WITHOUT ROWID"
    )
    return database
