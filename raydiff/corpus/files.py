"""Storage: the only file of this room that knows where a run's files are.

Reading goes through `pyarrow.fs`. Writing is one operation, `Folder.put`: a whole file appears
at once under its name or not at all. On a local disk that is a temporary file and a rename; an
object store does it by itself, so another kind of store needs changes in this file only.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.fs

from raydiff.errors import InputError, RunConflict, UsageError, invalid

TEMP_PREFIX = ".tmp-"
_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*://")


def local_path(location: str, param: str) -> Path:
    """The absolute path behind what the user typed.

    Raises:
        InputError: it names another kind of store, or nothing.
    """
    if not location or (_SCHEME.match(location) and not location.startswith("file://")):
        message = invalid(param, expected="a local path", got=location)
        raise InputError(message, param)
    return Path(location.removeprefix("file://")).expanduser().absolute()


class Folder:
    """A directory whose files are named by their path relative to it."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._filesystem = pa.fs.LocalFileSystem()

    def path(self, name: str) -> str:
        """Where `name` is, for messages and for other processes."""
        return str(self.root / name)

    def names(self, under: str = "") -> list[str]:
        """Sorted names of the files directly in `under`; none if there is no such directory."""
        selector = pa.fs.FileSelector(self.path(under), allow_not_found=True)
        infos = self._filesystem.get_file_info(selector)
        names = (info.base_name for info in infos if info.type == pa.fs.FileType.File)
        return sorted(f"{under}/{name}" if under else name for name in names)

    def open(self, name: str) -> pa.NativeFile:
        """A random-access reader."""
        return self._filesystem.open_input_file(self.path(name))

    def read(self, name: str) -> bytes:
        """The whole content of a file."""
        with self.open(name) as stream:
            content: bytes = stream.read()
        return content

    def exists(self, name: str) -> bool:
        """Whether `name` is a file."""
        info = self._filesystem.get_file_info(self.path(name))
        return bool(info.type == pa.fs.FileType.File)

    def put(self, name: str, content: bytes | pa.Buffer) -> None:
        """Write a whole file in one atomic step, replacing an older one of that name."""
        target = self.root / name
        temp = target.parent / f"{TEMP_PREFIX}{uuid.uuid4().hex}"
        try:
            with temp.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temp.replace(target)
        except BaseException:
            temp.unlink(missing_ok=True)
            raise
        _sync_directory(target.parent)

    def touch(self, name: str) -> None:
        """Make an empty file; unlike `put`, a power cut may undo it."""
        (self.root / name).touch()

    def remove(self, under: str) -> None:
        """Delete a directory with all its files, if it is there."""
        shutil.rmtree(self.root / under, ignore_errors=True)

    def delete(self, name: str) -> None:
        """Remove a file if it is there."""
        (self.root / name).unlink(missing_ok=True)

    def make(self, under: str = "") -> None:
        """Create the directory.

        Raises:
            UsageError: that is impossible.
        """
        try:
            (self.root / under).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"output: {self.path(under)} cannot be made a directory: {error.strerror}."
            raise UsageError(message, "output") from error

    def remove_leftovers(self, under: str = "") -> int:
        """Delete the temporary files of writers that were killed; returns how many."""
        leftovers = [n for n in self.names(under) if Path(n).name.startswith(TEMP_PREFIX)]
        for name in leftovers:
            self.delete(name)
        return len(leftovers)


class DirectoryLock:
    """Keeps a second driver out of a run directory; the kernel lets go when this one dies."""

    def __init__(self, folder: Folder) -> None:
        self._path = folder.root
        self._descriptor: int | None = None

    def __enter__(self) -> DirectoryLock:
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            message = f"output: another raydiff process is writing to {self._path}. Wait for it."
            raise RunConflict(message, "output") from error
        except OSError:
            # No locks on this filesystem: two drivers would waste work but lose nothing,
            # because commits are idempotent.
            pass
        self._descriptor = descriptor
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
