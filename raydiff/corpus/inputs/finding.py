"""From what the user typed to the files of the input: one listing of one folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from raydiff.config import StorageSettings
from raydiff.corpus.inputs.formats import EXTENSIONS, PARQUET_MAGIC, FileKind, kind_of
from raydiff.corpus.inputs.globs import compile_glob, is_glob
from raydiff.corpus.inputs.listing import Listing
from raydiff.errors import InputError, invalid
from raydiff.storage import Entry, Folder, LocalFolder, open_folder

_WRITTEN = ("part-0.parquet", "errors/errors-0.parquet")
"""Files of a run, by which a pattern that matches its directory is known."""
_ROOTED = re.compile(r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*://[^/]*|)/*")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which files of a folder are the input."""

    location: str
    """As it was typed."""
    folder: Folder
    """What file names are relative to: never inside a `key=value` directory."""
    under: str
    """The directory in the folder that is listed."""
    pattern: re.Pattern[str] | None = None
    """What names must match."""
    file: str | None = None
    """The one file that was named."""


def select(location: str, storage: StorageSettings) -> Selection:
    """Settle what a location means: a file, a directory or a pattern, in this order.

    Raises:
        InputError: there is no store of that kind.
    """
    open_folder(location, "input", storage)  # refuses what no store understands
    head = _ROOTED.match(location)
    root = head.group() if head else ""
    parts = [part for part in location[len(root) :].split("/") if part]
    if parts and (found := _file(location, root, parts, storage)):
        return found
    if not is_glob("/".join(parts)) or _holds_files(location, storage):
        return _directory(location, root, parts, storage)
    static = next(i for i, part in enumerate(parts) if is_glob(part))
    found = _directory(location, root, parts[:static], storage)
    pattern = "/".join([*([found.under] if found.under else []), *parts[static:]])
    return Selection(
        location=location, folder=found.folder, under=found.under, pattern=compile_glob(pattern)
    )


def require_unmatched(output: Folder, source: Folder) -> None:
    """Refuse an output whose files the input's pattern would take for input in the next start.

    Raises:
        InputError: it would.
    """
    pattern, place = (folder.uri.strip("/") for folder in (source, output))
    exists = isinstance(source, LocalFolder) and source.root.exists()
    if not is_glob(pattern) or exists:
        return
    parts = pattern.split("/")
    below = place.split("/")[next(i for i, part in enumerate(parts) if is_glob(part)) :]
    matches = compile_glob(pattern).fullmatch
    if not any(map(_is_hidden, below)) and any(matches(f"{place}/{name}") for name in _WRITTEN):
        raise InputError(
            f"output: {output.uri} matches the input {source.uri}; its files would become input. "
            "Choose a directory that the pattern does not match.",
            "output",
        )


def _file(location: str, root: str, parts: list[str], storage: StorageSettings) -> Selection | None:
    if location.endswith("/"):
        return None
    found = _directory(location, root, parts[:-1], storage)
    name = f"{found.under}/{parts[-1]}" if found.under else parts[-1]
    if not found.folder.exists(name):
        return None
    return Selection(location=location, folder=found.folder, under=found.under, file=name)


def _holds_files(location: str, storage: StorageSettings) -> bool:
    folder = open_folder(location, "input", storage)
    return next(iter(folder.entries(recursive=True)), None) is not None


def _directory(location: str, root: str, parts: list[str], storage: StorageSettings) -> Selection:
    """The folder above any `key=value` directories at the end, which have data in their names."""
    top = len(parts)
    while top and "=" in parts[top - 1]:
        top -= 1
    # A local path that is not absolute has no root, and may have no parts.
    folder = open_folder(root + "/".join(parts[:top]) or ".", "input", storage)
    return Selection(location=location, folder=folder, under="/".join(parts[top:]))


def list_files(selection: Selection) -> tuple[Listing, FileKind]:
    """The input's files, from one listing, and what they all are.

    Names that begin with a dot or an underscore are left out at any depth, as in Spark and Hive,
    and so are names that tell of no format.

    Raises:
        InputError: there are none, or they are of several formats.
    """
    search = _Search(selection)
    listing = Listing(search)
    if not len(listing):
        raise InputError(search.why_empty(), "input")
    if len(search.examples) > 1:
        named = " and ".join(sorted(f"{f} ({n})" for f, n in search.examples.items()))
        example = f"{selection.location.rstrip('/')}/**/*.parquet"
        raise InputError(
            f"input: {selection.location} has files of several formats: {named}. Choose those of "
            f"one with a pattern, such as {example!r}.",
            "input",
        )
    return listing, search.kinds[0]


class _Search:
    """The entries that are input, remembering what was seen on the way."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._seen = 0
        self.examples: dict[str, str] = {}
        """A file of each format."""
        self.kinds: list[FileKind] = []

    def __iter__(self) -> Iterator[Entry]:
        for entry in self._candidates():
            self._seen += 1
            kind = self._kind(entry.name)
            if kind is None:
                continue
            if kind.format not in self.examples:
                self.examples[kind.format] = entry.name
                self.kinds.append(kind)
            yield entry

    def _candidates(self) -> Iterator[Entry]:
        chosen = self._selection
        if chosen.file is not None:
            entries = chosen.folder.entries(chosen.under)
            yield from (entry for entry in entries if entry.name == chosen.file)
            return
        for entry in chosen.folder.entries(chosen.under, recursive=True):
            below = entry.name.removeprefix(f"{chosen.under}/") if chosen.under else entry.name
            if any(_is_hidden(part) for part in below.split("/")):
                continue
            if chosen.pattern is None or chosen.pattern.fullmatch(entry.name):
                yield entry

    def _kind(self, name: str) -> FileKind | None:
        kind = kind_of(name)
        if kind is None and self._selection.file is not None:
            return _kind_by_content(self._selection.folder, name)
        return kind

    def why_empty(self) -> str:
        location = self._selection.location
        if not self._seen:
            remedy = "There is no such path, or nothing in it."
            return invalid("input", expected="files to read", got=location, remedy=remedy)
        return f"input: {location} has no file whose name ends in {EXTENSIONS}."


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def _kind_by_content(folder: Folder, name: str) -> FileKind:
    with folder.open(name) as stream:
        start = stream.read(len(PARQUET_MAGIC))
    if start == PARQUET_MAGIC:
        return FileKind("parquet")
    expected = f"a name that ends in {EXTENSIONS}"
    raise InputError(invalid("input", expected=expected, got=folder.path(name)), "input")
