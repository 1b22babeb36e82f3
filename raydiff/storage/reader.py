"""Reads an object at random through pyarrow, and survives cut connections and outages."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from raydiff.errors import StorageError
from raydiff.storage.patience import pauses

_T = TypeVar("_T")

_AWAY_S = 1.0
PIECE_BYTES = 8 * 2**20
"""Longer reads are made of pieces of this size, so that a broken one costs no more."""


class S3Reader(io.RawIOBase):
    """What `pa.PythonFile` asks of a file. One thread at a time, as pyarrow sees to.

    When pyarrow fails, a request by boto3 decides what that means: it waits while the store is
    away, and says clearly when the object is gone or may not be read.
    """

    def __init__(
        self,
        *,
        open_file: Callable[[], pa.NativeFile],
        head: Callable[[], object],
        uri: str,
        patience_s: float,
    ) -> None:
        """`head` raises when the object cannot be had."""
        super().__init__()
        self._open_file = open_file
        self._head = head
        self._uri = uri
        self._patience_s = patience_s
        self._file: pa.NativeFile | None = None
        self._etag: bytes | None = None
        self._position = 0
        self._size = self._patiently(lambda file: int(file.size()))

    def close(self) -> None:
        super().close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        """The next bytes, fewer than asked for only at the end."""
        left = max(0, self._size - self._position)
        size = left if size < 0 else min(size, left)
        if size <= PIECE_BYTES:
            return self._piece(size)
        whole = pa.allocate_buffer(size)
        view = memoryview(whole)
        for at in range(0, size, PIECE_BYTES):
            piece = self._piece(min(PIECE_BYTES, size - at))
            view[at : at + len(piece)] = memoryview(piece)
        return whole

    def _piece(self, size: int) -> pa.Buffer:
        """The next `size` bytes, which are there."""

        def read(file: pa.NativeFile) -> pa.Buffer:
            file.seek(self._position)
            buffer = file.read_buffer(size)
            if len(buffer) != size:
                raise OSError(f"expected {size} bytes at {self._position}, got {len(buffer)}")
            return buffer

        buffer = self._patiently(read)
        self._position += size
        return buffer

    def _patiently(self, use: Callable[[pa.NativeFile], _T]) -> _T:
        waits = pauses(self._patience_s)
        while True:
            try:
                return use(self._opened())
            except OSError as error:
                self._file = None
                asked_s = time.monotonic()
                self._head()
                if time.monotonic() - asked_s > _AWAY_S:
                    waits = pauses(self._patience_s)  # it was away, and is back
                pause = next(waits, None)
                if pause is None:
                    raise StorageError(
                        f"{self._uri}: the object is there, but reading it failed for "
                        f"{self._patience_s:.0f} s, lastly with: {error}. Run the same command "
                        "again to continue."
                    ) from error
            time.sleep(pause)

    def _opened(self) -> pa.NativeFile:
        if self._file is None:
            file = self._open_file()
            metadata: Mapping[Any, bytes] = file.metadata()  # keys are str, whatever the stubs say
            etag = metadata.get("ETag", b"")
            if self._etag not in (None, etag):
                raise StorageError(
                    f"{self._uri}: the object was written again while it was being read. Leave "
                    "the input unchanged while a run is under way."
                )
            self._file, self._etag = file, etag
        return self._file
