"""What the room asks of a store: whole files under names, listed, read at random, put at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

LEASE_NAME = "_lease.json"
LOCK_NAME = ".lock"
TEMP_PREFIX = ".tmp-"


def is_own(name: str) -> bool:
    """Whether storage itself made this file: a lease, a lock, or what a killed writer left."""
    last = name.rpartition("/")[2]
    return last in (LEASE_NAME, LOCK_NAME) or last.startswith(TEMP_PREFIX)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file of a listing."""

    name: str
    """Path relative to the folder that was listed."""
    size_bytes: int
    version: str
    """Changes when the file is written again: an ETag, or the time of the last write."""


class Folder(Protocol):
    """A directory of a store, whose files are named by their path relative to it.

    Writing is one operation, `put`: a whole file appears at once under its name or not at all.
    Pickles, so that workers on other nodes have the same folder.
    """

    @property
    def uri(self) -> str:
        """What opens this folder again: an absolute path or an `s3://` address."""

    @property
    def is_local(self) -> bool:
        """Whether its files are seen by this machine only, unless it mounts a shared disk."""

    def path(self, name: str) -> str:
        """Where `name` is, for messages."""

    def entries(self, under: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        """Files in `under`, with their names relative to the folder, in no promised order; none
        if there is no such directory."""

    def names(self, under: str = "") -> list[str]:
        """Sorted names of the files directly in `under`; none if there is no such directory."""

    def open(self, name: str) -> pa.NativeFile:
        """A random-access reader."""

    def read(self, name: str) -> bytes:
        """The whole content of a file."""

    def exists(self, name: str) -> bool:
        """Whether `name` is a file."""

    def put(self, name: str, content: bytes | pa.Buffer) -> None:
        """Write a whole file in one atomic step, replacing an older one of that name."""

    def create(self, name: str, content: bytes | pa.Buffer) -> bool:
        """Write a whole file unless there is one of that name; returns whether it did."""

    def delete(self, name: str) -> None:
        """Remove a file if it is there."""

    def delete_many(self, names: Iterable[str]) -> None:
        """Remove those of the files that are there."""

    def remove(self, under: str) -> None:
        """Delete a directory with all its files, if it is there."""

    def make(self, under: str = "") -> None:
        """Create the directory, where the store has such a thing.

        Raises:
            UsageError: that is impossible.
            StorageError: the store refused or is out of reach.
        """

    def remove_leftovers(self, under: str = "", listed: Iterable[str] | None = None) -> int:
        """Delete what killed writers left unfinished; returns how many. `listed` are names that a
        listing of the directory has just given, so that it need not be listed again."""
