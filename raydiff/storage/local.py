"""Folders on a disk of this machine, or on one that it mounts.

A whole file appears by a temporary file and a rename.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.fs

from raydiff.errors import InputError, UsageError, invalid
from raydiff.storage.address import scheme_of
from raydiff.storage.folder import TEMP_PREFIX, Entry


def local_path(location: str, param: str) -> Path:
    """The absolute path behind what the user typed.

    Raises:
        InputError: it names another kind of store, or nothing.
    """
    scheme = scheme_of(location)
    if not location or scheme not in ("", "file://"):
        # The rest of an address may hold a secret.
        got = f"{scheme}..." if scheme else location
        message = invalid(param, expected="a path or s3://BUCKET/PREFIX", got=got)
        raise InputError(message, param)
    return Path(location.removeprefix("file://")).expanduser().absolute()


_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What filesystems without hard links answer, such as some that are mounted from elsewhere."""


class LocalFolder:
    """A directory of a mounted disk."""

    is_local = True

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._filesystem = pa.fs.LocalFileSystem()

    @property
    def uri(self) -> str:
        """The absolute path."""
        return str(self.root)

    def path(self, name: str) -> str:
        """Where `name` is, for messages and for other processes."""
        return str(self.root / name)

    def entries(self, under: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        """Files in `under`, in no promised order; none if there is no such directory."""
        pending = [under]
        while pending:
            folder = pending.pop()
            try:
                found = os.scandir(self.root / folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            with found:
                for item in found:
                    name = f"{folder}/{item.name}" if folder else item.name
                    if item.is_file():
                        with suppress(FileNotFoundError):  # gone since it was listed
                            yield _entry(name, item)
                    elif recursive and item.is_dir():
                        pending.append(name)

    def names(self, under: str = "") -> list[str]:
        """Sorted names of the files directly in `under`; none if there is no such directory."""
        return sorted(entry.name for entry in self.entries(under))

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
        return (self.root / name).is_file()

    def put(self, name: str, content: bytes | pa.Buffer) -> None:
        """Write a whole file in one atomic step, replacing an older one of that name."""
        with self._written(name, content) as temp:
            temp.replace(self.root / name)

    def create(self, name: str, content: bytes | pa.Buffer) -> bool:
        """Write a whole file unless there is one of that name; returns whether it did."""
        with self._written(name, content) as temp:
            return _link(temp, self.root / name)

    @contextmanager
    def _written(self, name: str, content: bytes | pa.Buffer) -> Iterator[Path]:
        """A durable temporary file beside the target, gone afterwards."""
        folder = (self.root / name).parent
        temp = folder / f"{TEMP_PREFIX}{uuid.uuid4().hex}"
        try:
            with temp.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            yield temp
        finally:
            temp.unlink(missing_ok=True)
        _sync_directory(folder)

    def remove(self, under: str) -> None:
        """Delete a directory with all its files, if it is there."""
        shutil.rmtree(self.root / under, ignore_errors=True)

    def delete(self, name: str) -> None:
        """Remove a file if it is there."""
        (self.root / name).unlink(missing_ok=True)

    def delete_many(self, names: Iterable[str]) -> None:
        """Remove those of the files that are there."""
        for name in names:
            self.delete(name)

    def make(self, under: str = "") -> None:
        """Create the directory.

        Raises:
            UsageError: that is impossible.
        """
        if self.root.exists() and not self.root.is_dir():
            message = f"output: {self.root} is a file; expected a directory."
            raise UsageError(message, "output")
        try:
            (self.root / under).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"output: {self.path(under)} cannot be made a directory: {error.strerror}."
            raise UsageError(message, "output") from error

    def remove_leftovers(self, under: str = "", listed: Iterable[str] | None = None) -> int:
        """Delete the temporary files of writers that were killed; returns how many."""
        names = self._names(under) if listed is None else listed
        leftovers = [n for n in names if n.rpartition("/")[2].startswith(TEMP_PREFIX)]
        self.delete_many(leftovers)
        return len(leftovers)

    def _names(self, under: str) -> list[str]:
        """Names in a directory, without a look at each file."""
        try:
            names = os.listdir(self.root / under)
        except FileNotFoundError:
            return []
        return [f"{under}/{name}" if under else name for name in names]


def _entry(name: str, item: os.DirEntry[str]) -> Entry:
    status = item.stat()
    return Entry(name=name, size_bytes=status.st_size, version=str(status.st_mtime_ns))


def _link(temp: Path, target: Path) -> bool:
    """Give a file its name unless that is taken; returns whether it did."""
    try:
        os.link(temp, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Two writers at the very same moment may both believe to be the first; what each writes
        # is whole.
        if target.exists():
            return False
        temp.replace(target)
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
