"""One driver at a time: whoever writes to a run directory holds it first."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from raydiff.errors import RunConflict
from raydiff.storage.folder import LOCK_NAME, Folder
from raydiff.storage.lease import Lease, find_lease_holder
from raydiff.storage.local import LocalFolder
from raydiff.storage.s3 import S3Folder


class Hold(Protocol):
    """That this process, and no other, drives the run in a folder."""

    def check(self) -> None:
        """Make sure of it.

        Raises:
            RunConflict: another driver has taken over.
            StorageError: that cannot be known, because the store is out of reach.
        """


class _LocalHold:
    """The kernel keeps a lock as long as the process lives."""

    def check(self) -> None:
        """Nobody else can have taken it."""


@contextmanager
def hold(folder: Folder) -> Iterator[Hold]:
    """Hold a folder until the end of the block.

    Raises:
        RunConflict: another driver holds it; the message names it where it can be known.
    """
    if isinstance(folder, S3Folder):
        with Lease(folder) as lease:
            yield lease
        return
    assert isinstance(folder, LocalFolder), folder
    with _locked(folder):
        yield _LocalHold()


def find_holder(folder: Folder) -> str | None:
    """The driver that holds a folder now, in words; `None` if none is known.

    Of folders on disks only this machine's processes are known. Nothing is locked or written.
    """
    if isinstance(folder, S3Folder):
        return find_lease_holder(folder)
    assert isinstance(folder, LocalFolder), folder
    return _lock_owner(folder)


def _lock_owner(folder: LocalFolder) -> str | None:
    """As the kernel lists locks: to try for one would refuse a driver that begins just then."""
    try:
        status = os.stat(folder.root / LOCK_NAME)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        fields = line.split()
        if fields[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and fields[5] == device:
            return f"process {fields[4]}"
    return None


@contextmanager
def _locked(folder: LocalFolder) -> Iterator[None]:
    """The kernel lets go of the lock when this process dies.

    A file is locked, not the directory: disks in the network want one that is open for writing.
    It stays, for whoever removes a file that is locked makes room for a second lock.
    """
    descriptor = os.open(folder.root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: LocalFolder) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        message = f"output: another raydiff process is writing to {folder.uri}. Wait for it."
        raise RunConflict(message, "output") from error
    except OSError:
        # No locks on this filesystem: two drivers would waste work but lose nothing, because
        # commits are idempotent.
        pass
