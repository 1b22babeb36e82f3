"""Keeps a second driver out of a run directory in an object store.

`_lease.json` is created by a conditional write and renewed by others, each on condition that the
object is still the one written last. Its age is measured by the store's clock, so that the clocks
of drivers do not matter. A holder that dies stops renewing; after `lease_s` another takes over, at
once if it can see that the process is gone.
"""

from __future__ import annotations

import logging
import threading
import time

from raydiff.errors import RaydiffError, RunConflict, StorageError
from raydiff.storage.folder import LEASE_NAME
from raydiff.storage.holder import Holder
from raydiff.storage.s3 import S3Folder, Version

_log = logging.getLogger(__name__)

_ROUNDING_S = 1.0
"""The store tells times to the second."""
_CONTESTS = 10
_RELEASE_PATIENCE_S = 5.0


class Lease:
    """One driver's hold on a folder, renewed by a thread of its own."""

    def __init__(self, folder: S3Folder) -> None:
        self._folder = folder
        self._lease_s = folder.storage.lease_s
        self._holder = Holder.current(self._lease_s)
        self._renewals = 0
        self._etag = ""
        self._lost: str | None = None
        self._good_until_s = 0.0
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="raydiff-lease", daemon=True)

    def __enter__(self) -> Lease:
        self._acquire()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._released.set()
        self._thread.join(timeout=_RELEASE_PATIENCE_S)
        if self._lost is None and not self._thread.is_alive():
            self._release()

    def check(self) -> None:
        """Make sure that this process holds the folder.

        Raises:
            RunConflict: another driver has taken over.
            StorageError: that cannot be known, because the store is out of reach.
        """
        if self._lost is None and _now_s() >= self._good_until_s:
            self._renew()
        if self._lost is not None:
            raise RunConflict(self._lost, "output")

    def _acquire(self) -> None:
        """Create the lease, or take over one whose holder is dead.

        Raises:
            RunConflict: another driver holds the folder.
            StorageError: the store is out of reach, or knows no conditional writes.
        """
        for _ in range(_CONTESTS):
            if self._write(None):
                self._require_conditions()
                return
            found = self._found()
            if found is None:
                continue
            holder = Holder.parse(found.content)
            left_s = (holder.lease_s if holder else self._lease_s) + _ROUNDING_S - found.age_s
            if left_s > 0 and not (holder and holder.is_known_dead()):
                raise RunConflict(self._refusal(holder, left_s), "output")
            if self._write(found.etag):
                _log.warning("%s: taken over from %s, which is dead.", self._folder.uri, holder)
                return
        message = f"output: other raydiff processes contend for {self._folder.uri}. Try later."
        raise RunConflict(message, "output")

    def _found(self) -> Version | None:
        try:
            return self._folder.read_version(LEASE_NAME)
        except FileNotFoundError:
            return None

    def _require_conditions(self) -> None:
        """Some stores take a conditional write for a plain one."""
        # Not the record itself: found after a lost answer, it would look like this write's own.
        if self._folder.put_if(LEASE_NAME, self._holder.record(-1), None) is not None:
            self._folder.delete(LEASE_NAME)
            raise StorageError(
                f"{self._folder.path(LEASE_NAME)}: expected a store that refuses to write over an "
                "object when told If-None-Match: *, got one that does not, so that two drivers "
                "could not be kept apart. Use a newer version of the store."
            )

    def _refusal(self, holder: Holder | None, left_s: float) -> str:
        who = str(holder) if holder else "an unknown process"
        return (
            f"output: {who} is writing to {self._folder.uri}. Wait for it to end; should it be "
            f"dead, its lease ends in {left_s:.0f} s unless it is renewed."
        )

    def _keep(self) -> None:
        while not self._released.wait(self._lease_s / 3) and self._lost is None:
            try:
                self._renew()
            except RaydiffError as error:
                _log.warning("The lease on the run could not be renewed: %s", error)

    def _renew(self) -> None:
        with self._lock:
            for _ in range(_CONTESTS):
                if self._released.is_set() or self._lost is not None:
                    return
                self._renewals += 1
                if self._write(self._etag):
                    return
                found = self._found()
                taker = Holder.parse(found.content) if found else None
                if found is None or taker is None or taker.token != self._holder.token:
                    self._lose(taker)
                    return
                # A renewal that was given up did get through.
                self._etag = found.etag

    def _lose(self, taker: Holder | None) -> None:
        self._lost = (
            f"output: this process has lost {self._folder.uri} to {taker or 'another process'}, "
            f"because it gave no sign of life for {self._lease_s:.0f} s. Committed shards are "
            "kept; leave the run to the other."
        )
        _log.error("%s", self._lost)

    def _write(self, condition: str | None) -> bool:
        began_s = _now_s()
        etag = self._folder.put_if(LEASE_NAME, self._record(), condition)
        if etag is not None:
            self._etag, self._good_until_s = etag, began_s + self._lease_s
        return etag is not None

    def _record(self) -> bytes:
        return self._holder.record(self._renewals)

    def _release(self) -> None:
        """Give the folder back at once; failing that, the lease ends by itself."""
        hasty = self._folder.storage.model_copy(update={"patience_s": _RELEASE_PATIENCE_S})
        try:
            S3Folder(self._folder.address, hasty).delete_if(LEASE_NAME, self._etag)
        except RaydiffError as error:
            _log.warning("The lease on the run was not given back: %s", error)


def find_lease_holder(folder: S3Folder) -> str | None:
    """Who holds a folder now, in words; `None` if nobody does or its holder is dead."""
    try:
        found = folder.read_version(LEASE_NAME)
    except FileNotFoundError:
        return None
    holder = Holder.parse(found.content)
    if holder is None:
        return "an unknown process"
    expired = found.age_s > holder.lease_s + _ROUNDING_S
    return None if expired or holder.is_known_dead() else str(holder)


def _now_s() -> float:
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
