"""Key files: YAML or JSON, one or a directory of them, and how a change of them shows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from raydiff.errors import InputError
from raydiff.serve.access.keys import KeyEntry, entries_of, unique

MAX_BYTES = 16 * 2**20
"""Largest key file."""

Stamp = tuple[tuple[str, int, int, int], ...]
"""What changes when files do: of each its name, inode, time of change and size."""


def stamp_of(path: Path) -> Stamp:
    """The state of the file, or of a directory's files, symbolic links followed.

    Kubernetes replaces a mounted Secret by pointing the link `..data` elsewhere: then the files
    have other inodes.

    Raises:
        OSError: it is out of reach.
    """
    stats = [(file.name, os.stat(file)) for file in _files(path)]
    return tuple((name, s.st_ino, s.st_mtime_ns, s.st_size) for name, s in stats)


def read_keys(path: Path) -> tuple[KeyEntry, ...]:
    """All keys of the file, or of a directory's files.

    Raises:
        InputError: a file cannot be read, or is neither YAML nor JSON.
        UsageError: a file's content is wrong; the message repeats no value of it.
    """
    try:
        files = _files(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    if not files:
        raise InputError(f"keys_file {path}: the directory holds no file.", "keys_file")
    entries = [entry for file in files for entry in entries_of(_load(file), str(file))]
    unique(tuple(entries), str(path))
    return tuple(entries)


def _files(path: Path) -> Sequence[Path]:
    """In a directory, dot-files are Kubernetes' own or an editor's."""
    if not path.is_dir():
        return [path]
    return sorted(f for f in path.iterdir() if not f.name.startswith(".") and f.is_file())


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise InputError(f"keys_file {path}: larger than {MAX_BYTES} bytes.", "keys_file")
        # JSON is YAML too; the C parser, where there is one, reads large files 10 times faster
        return yaml.load(raw.decode("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError:
        raise InputError(f"keys_file {path}: expected UTF-8.", "keys_file") from None
    except yaml.YAMLError as error:
        # its message quotes the line, and with it a hash
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1})"
        raise InputError(f"keys_file {path}: neither YAML nor JSON{where}.", "keys_file") from None


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"keys_file {path}: cannot be read: {error.strerror}.", "keys_file")
