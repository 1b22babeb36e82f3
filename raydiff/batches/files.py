"""OpenAI's files: of each key its own, with content in pieces and a record that makes it count."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from raydiff.batches.ids import is_id, owner_folder
from raydiff.batches.listing import listed
from raydiff.batches.pieces import content_folder, read_pieces
from raydiff.storage import Folder

_READERS = 16


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """What is known of a file beside its content."""

    id: str
    bytes: int
    created_at: int
    """Unix time in seconds."""
    filename: str
    purpose: str
    """"batch" of uploads, "batch_output" of what batches make."""
    pieces: int

    def body(self) -> dict[str, Any]:
        """OpenAI's file object."""
        shown = asdict(self)
        del shown["pieces"]
        return {"object": "file", **shown, "status": "processed", "expires_at": None}


class FileStore:
    """The files of all keys. Every method is told whose files it may see."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def add(self, key_id: str, record: FileRecord) -> None:
        """Make a file whose pieces are written count."""
        self.folder.make(_folder(key_id))
        self.folder.put(_name(key_id, record.id), json.dumps(asdict(record)).encode())

    def find(self, key_id: str, file_id: str) -> FileRecord | None:
        """A file of this key."""
        if not is_id(file_id, "file"):
            return None
        try:
            fields = json.loads(self.folder.read(_name(key_id, file_id)))
        except FileNotFoundError:
            return None
        return FileRecord(**fields)

    def content(self, record: FileRecord) -> Iterator[bytes]:
        """A file's content, piece by piece."""
        return read_pieces(self.folder, record.id, record.pieces)

    def delete(self, key_id: str, file_id: str) -> bool:
        """Remove a file of this key; whether there was one."""
        if self.find(key_id, file_id) is None:
            return False
        self.folder.delete(_name(key_id, file_id))
        self.folder.remove(content_folder(file_id))
        return True

    def ids(self, key_id: str) -> list[str]:
        """Names of all files of a key, the oldest first."""
        return [name.removesuffix(".json") for name in listed(self.folder, _folder(key_id))]

    def records(self, key_id: str, ids: Sequence[str]) -> list[FileRecord]:
        """The records of some files; those that are gone are left out."""
        with ThreadPoolExecutor(_READERS) as pool:
            found = pool.map(lambda file_id: self.find(key_id, file_id), ids)
            return [record for record in found if record is not None]


def _folder(key_id: str) -> str:
    return f"{owner_folder(key_id)}/files"


def _name(key_id: str, file_id: str) -> str:
    return f"{_folder(key_id)}/{file_id}.json"
