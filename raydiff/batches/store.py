"""Where batches are kept. Nothing is ever rewritten: each thing that happens to a batch is a file
of its own that only one writer can create, so any number of gateways and jobs may look and write
at once, and what they see only ever moves on.

owners/KEY/files/FILE.json         a file's record; its content lies in content/FILE/
owners/KEY/batches/BATCH.json      a batch as it was asked for
open/BATCH                         names the key of each batch that has not ended
batches/BATCH/validated.json       its input is sound
batches/BATCH/cancelling.json      to be stopped
batches/BATCH/finalizing.json      its output is being written
batches/BATCH/ended.json           how it ended
batches/BATCH/attempts/N           its N-th job was submitted
batches/BATCH/input/, run/         the corpus run over its lines
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from raydiff.batches.files import FileStore
from raydiff.batches.ids import is_id, owner_folder
from raydiff.batches.listing import listed
from raydiff.batches.records import BatchRecord, BatchState, Ended, Validated
from raydiff.config import BatchSettings
from raydiff.storage import Folder, find_holder, open_folder

OPEN = "open"
_VALIDATED = "validated.json"
_CANCELLING = "cancelling.json"
_FINALIZING = "finalizing.json"
_ENDED = "ended.json"
_READERS = 16


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """The jobs that a batch has had."""

    number: int
    """Of the last one; 0 if there was none."""
    last_s: float
    """Unix time at which that was submitted."""


class BatchStore:
    """Files and batches of all keys at one location. Blocking: call it from threads."""

    def __init__(self, settings: BatchSettings) -> None:
        """Nothing is read or written.

        Raises:
            InputError: there is no store of that kind.
        """
        self.settings = settings
        self.folder = open_folder(settings.location, "batches.location", settings.storage)
        self.files = FileStore(self.folder)

    def add(self, record: BatchRecord) -> None:
        """A new batch, which whoever looks after open batches begins."""
        owned = _folder(record.key_id)
        for under in (OPEN, owned, attempts_folder(record.id)):
            self.folder.make(under)
        content = json.dumps(asdict(record)).encode()
        # First the mark: a batch without one would never be begun.
        self.folder.put(f"{OPEN}/{record.id}", record.key_id.encode())
        self.folder.put(f"{owned}/{record.id}.json", content)

    def find(self, key_id: str, batch_id: str) -> BatchState | None:
        """A batch of this key as it stands."""
        if not is_id(batch_id, "batch"):
            return None
        try:
            fields = json.loads(self.folder.read(f"{_folder(key_id)}/{batch_id}.json"))
        except FileNotFoundError:
            return None
        return self._state(BatchRecord(**fields))

    def owner(self, batch_id: str) -> str:
        """The key of an open batch; empty if it is not open any more."""
        try:
            return self.folder.read(f"{OPEN}/{batch_id}").decode()
        except FileNotFoundError:
            return ""

    def find_open(self, batch_id: str) -> BatchState | None:
        """An open batch, whosever it is."""
        key_id = self.owner(batch_id)
        return self.find(key_id, batch_id) if key_id else None

    def ids(self, key_id: str) -> list[str]:
        """Names of all batches of a key, the oldest first."""
        names = listed(self.folder, _folder(key_id))
        return [name.removesuffix(".json") for name in names]

    def states(self, key_id: str, ids: Sequence[str]) -> list[BatchState]:
        """Some batches of a key as they stand."""
        with ThreadPoolExecutor(_READERS) as pool:
            found = pool.map(lambda batch_id: self.find(key_id, batch_id), ids)
            return [state for state in found if state is not None]

    def open_ids(self) -> list[str]:
        """Batches that have not ended, the oldest first."""
        return listed(self.folder, OPEN)

    def validated(self, batch_id: str, validated: Validated) -> None:
        """Its input is sound."""
        self._note(batch_id, _VALIDATED, asdict(validated))

    def cancel(self, batch_id: str, at: int) -> None:
        """Its job is to stop."""
        self._note(batch_id, _CANCELLING, {"at": at})

    def is_cancelled(self, batch_id: str) -> bool:
        """Whether its job is to stop."""
        return self.folder.exists(f"{batch_folder(batch_id)}/{_CANCELLING}")

    def finalizing(self, batch_id: str, at: int) -> None:
        """Its output is being written."""
        self._note(batch_id, _FINALIZING, {"at": at})

    def end(self, batch_id: str, ended: Ended) -> None:
        """It has ended; the first to say so is right."""
        self._note(batch_id, _ENDED, asdict(ended))
        self.close(batch_id)

    def close(self, batch_id: str) -> None:
        """No longer look after it."""
        self.folder.delete(f"{OPEN}/{batch_id}")

    def claim(self, batch_id: str, number: int, at_s: float) -> bool:
        """Be the one who submits a batch's job of this number."""
        name = f"{attempts_folder(batch_id)}/{number:06d}"
        return self.folder.create(name, json.dumps({"at": at_s}).encode())

    def is_held(self, batch_id: str) -> bool:
        """Whether some process, of whatever cluster, is known to drive its run."""
        return find_holder(self.run_folder(batch_id)) is not None

    def run_folder(self, batch_id: str) -> Folder:
        """The directory of its corpus run."""
        return self._below(f"{batch_folder(batch_id)}/run")

    def input_folder(self, batch_id: str) -> Folder:
        """The directory of what its corpus run reads."""
        return self._below(f"{batch_folder(batch_id)}/input")

    def _below(self, name: str) -> Folder:
        location = f"{self.folder.uri.rstrip('/')}/{name}"
        return open_folder(location, "batches.location", self.settings.storage)

    def _note(self, batch_id: str, name: str, fields: dict[str, Any]) -> None:
        under = batch_folder(batch_id)
        self.folder.make(under)
        self.folder.create(f"{under}/{name}", json.dumps(fields).encode())

    def _state(self, record: BatchRecord) -> BatchState:
        under = batch_folder(record.id)
        there = {entry.name.rpartition("/")[2] for entry in self.folder.entries(under)}
        fields = {
            name: json.loads(self.folder.read(f"{under}/{name}"))
            for name in (_VALIDATED, _CANCELLING, _FINALIZING, _ENDED)
            if name in there
        }
        ended = Ended.from_fields(fields[_ENDED]) if _ENDED in fields else None
        validated = Validated(**fields[_VALIDATED]) if _VALIDATED in fields else None
        running = ended is None and validated is not None
        completed, failed = self._progress(record.id) if running else (0, 0)
        return BatchState(
            record=record,
            validated=validated,
            cancelling_at=fields.get(_CANCELLING, {}).get("at"),
            finalizing_at=fields.get(_FINALIZING, {}).get("at"),
            ended=ended,
            completed=completed,
            failed=failed,
        )

    def attempts(self, batch_id: str) -> Attempts:
        """How many jobs it has had."""
        under = attempts_folder(batch_id)
        names = listed(self.folder, under)
        if not names:
            return Attempts(number=0, last_s=0.0)
        record = json.loads(self.folder.read(f"{under}/{names[-1]}"))
        return Attempts(number=int(names[-1]), last_s=float(record["at"]))

    def _progress(self, batch_id: str) -> tuple[int, int]:
        """Lines committed so far, as names of parts tell: answered and failed."""
        from raydiff.corpus.parts import Part

        parts: dict[int, Part] = {}
        for entry in self.run_folder(batch_id).entries():
            part = Part.parse(entry.name)
            if part is not None and (
                part.first not in parts or part.errors < parts[part.first].errors
            ):
                parts[part.first] = part
        return sum(p.rows for p in parts.values()), sum(p.errors for p in parts.values())


def batch_folder(batch_id: str) -> str:
    """Where what happens to a batch is kept."""
    return f"batches/{batch_id}"


def attempts_folder(batch_id: str) -> str:
    """Where its jobs are counted."""
    return f"{batch_folder(batch_id)}/attempts"


def _folder(key_id: str) -> str:
    return f"{owner_folder(key_id)}/batches"
