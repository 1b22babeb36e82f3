"""Contents of files as a row of objects, so that neither side ever holds a whole file.

A content counts once its record is written, which happens after the last piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from raydiff.storage import Folder

PIECE_BYTES = 8 * 2**20


def content_folder(file_id: str) -> str:
    """Where the pieces of a file are."""
    return f"content/{file_id}"


class PieceWriter:
    """Takes a file's content bit by bit. Left with an exception, it removes what it wrote."""

    def __init__(self, folder: Folder, file_id: str, piece_bytes: int = PIECE_BYTES) -> None:
        self._folder = folder
        self._under = content_folder(file_id)
        self._piece_bytes = piece_bytes
        self._waiting = bytearray()
        self.size_bytes = 0
        """All that was written."""
        self.pieces = 0
        """Pieces in the store; final once the block has ended."""

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.abandon()

    def begin(self) -> None:
        """Make room; for whoever cannot use a block."""
        self._folder.make(self._under)

    def finish(self) -> None:
        """Write what is left."""
        if self._waiting:
            self._put(bytes(self._waiting))
            self._waiting.clear()

    def abandon(self) -> None:
        """Remove what was written."""
        self._folder.remove(self._under)

    def write(self, data: bytes) -> None:
        """Add to the content."""
        self._waiting += data
        self.size_bytes += len(data)
        while len(self._waiting) >= self._piece_bytes:
            self._put(bytes(self._waiting[: self._piece_bytes]))
            del self._waiting[: self._piece_bytes]

    def _put(self, content: bytes) -> None:
        self._folder.put(piece_name(self._under, self.pieces), content)
        self.pieces += 1


def piece_name(under: str, number: int) -> str:
    """The object that holds a piece."""
    return f"{under}/{number:06d}"


def read_pieces(folder: Folder, file_id: str, pieces: int) -> Iterator[bytes]:
    """The content, piece by piece.

    Raises:
        FileNotFoundError: it was deleted meanwhile.
    """
    for number in range(pieces):
        yield folder.read(piece_name(content_folder(file_id), number))


def read_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a content, without their ends."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    if rest:
        yield rest
