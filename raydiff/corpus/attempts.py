"""Marks on disk of what went wrong with shards and documents, so that workers' deaths end.

Ray restarts workers and replicas without limit, which is right for a machine that went away and
wrong for a document that takes its worker or replica along each time. Memory of the attempts
must outlive both: a mark is made before a risk is taken and removed when it was survived.

attempts/SHARD/begun-N      the shard was begun the Nth time; all but the last begun ended badly
attempts/SHARD/INDEX-N      the document at INDEX took something along the Nth time, or is at it
attempts/SHARD/spanK-N      reading the Kth span of the shard did
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from raydiff.corpus.disk_full import Room
from raydiff.corpus.plan import Shard
from raydiff.storage import Folder

ATTEMPTS_FOLDER = "attempts"

_BEGUN = "begun"
_MARK = re.compile(r"(?P<what>begun|span\d+|\d+)-(?P<number>\d+)")


class ShardAttempts:
    """The marks of one shard since the driver started; it has some only while it is in hand."""

    def __init__(self, folder: Folder, shard: Shard, room: Room | None = None) -> None:
        """`room` waits where the disk is full."""
        self._folder = folder
        self._room = room or Room()
        self._under = f"{ATTEMPTS_FOLDER}/{shard.shard_id}"
        self._marks: Counter[str] = Counter()

    def begin(self) -> int:
        """Note that the shard is begun; returns how often it was begun before."""
        self._marks = Counter()
        for name in self._folder.names(self._under):
            if match := _MARK.fullmatch(name.rpartition("/")[2]):
                self._marks[match["what"]] += 1
        before = self._marks[_BEGUN]
        self._mark(_BEGUN)
        return before

    def deaths(self, index: int) -> int:
        """How often the document took a worker or, alone, a replica along."""
        return self._marks[str(index)]

    def span_deaths(self, span: int) -> int:
        """How often reading a span took a worker along."""
        return self._marks[f"span{span}"]

    def reason(self, index: int) -> str:
        """What the document last took along: "WorkerDied" or "ReplicaDied"."""
        return self._folder.read(self._name(str(index))).decode()

    @property
    def guilty(self) -> list[int]:
        """Documents that took something along."""
        return [int(what) for what, count in self._marks.items() if what.isdecimal() and count]

    @property
    def explained(self) -> int:
        """Deaths that documents and spans answer for."""
        return self._marks.total() - self._marks[_BEGUN]

    @contextmanager
    def risk_document(self, index: int) -> Iterator[None]:
        """While a risk is taken with one document: what dies within is the document's doing."""
        with self._risk(str(index)):
            yield

    @contextmanager
    def risk_span(self, span: int) -> Iterator[None]:
        """While a span is read: what dies within is the span's doing."""
        with self._risk(f"span{span}"):
            yield

    def charge(self, index: int) -> int:
        """Mark a document before it runs alone; returns which attempt that is."""
        self._mark(str(index), "ReplicaDied")
        return self.deaths(index)

    def discharge(self, index: int) -> None:
        """Take the last mark of a document back: nothing died."""
        self._unmark(str(index))

    def end(self) -> None:
        """Forget the shard."""
        self._folder.remove(self._under)

    @contextmanager
    def _risk(self, what: str) -> Iterator[None]:
        self._mark(what, "WorkerDied")
        try:
            yield
        finally:
            self._unmark(what)

    def _mark(self, what: str, reason: str = "") -> None:
        self._marks[what] += 1
        name = self._name(what)
        self._room.wait_for(lambda: self._put(name, reason.encode()))

    def _put(self, name: str, content: bytes) -> None:
        try:
            self._folder.put(name, content)
        except FileNotFoundError:  # a store with directories has none for this shard yet
            self._folder.make(self._under)
            self._folder.put(name, content)

    def _unmark(self, what: str) -> None:
        self._folder.delete(self._name(what))
        self._marks[what] -= 1

    def _name(self, what: str) -> str:
        return f"{self._under}/{what}-{self._marks[what]:03d}"
