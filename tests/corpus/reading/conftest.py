"""Plans and reads an input as workers do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from raydiff.config import CorpusSettings
from raydiff.corpus.cutting import plan_items
from raydiff.corpus.inputs import Inputs, open_inputs
from raydiff.corpus.plan import Shard, Span
from raydiff.corpus.reading import Rejected, SpanReader, SpanRows
from raydiff.storage import Entry, LocalFolder


def opened(path: Path | str, **options: Any) -> Inputs:
    return open_inputs(CorpusSettings(input=str(path), output="unused", **options))


def spans_of(inputs: Inputs, shard_rows: int = 100) -> list[Span]:
    items = plan_items(inputs, inputs.listing, shard_rows)
    return [span for item in items if isinstance(item, Shard) for span in item.spans]


def reader_of(inputs: Inputs) -> SpanReader:
    return SpanReader(inputs.folder, inputs.layout)


def read_all(inputs: Inputs, shard_rows: int = 100) -> tuple[list[str], pa.Table]:
    """Every document, or the type of error in its place, and the carried columns."""
    reader = reader_of(inputs)
    found: list[SpanRows] = [reader.read(span) for span in spans_of(inputs, shard_rows)]
    texts = [text for rows in found for text in rows.texts]
    return [said(text) for text in texts], pa.concat_tables([rows.carried for rows in found])


def said(text: str | Rejected) -> str:
    return text if isinstance(text, str) else f"<{text.error_type}>"


class CountingFolder:
    """A local folder that counts what is read of its files."""

    def __init__(self, root: Path) -> None:
        self._folder = LocalFolder(root)
        self.opened: list[str] = []
        self.bytes_read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._folder, name)

    def entries(self, under: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        return self._folder.entries(under, recursive=recursive)

    def open(self, name: str) -> pa.NativeFile:
        self.opened.append(name)
        return pa.PythonFile(_CountingFile(self._folder.open(name), self), mode="r")


class _CountingFile:
    """What `pa.PythonFile` needs of a file."""

    def __init__(self, file: pa.NativeFile, counts: CountingFolder) -> None:
        self._file = file
        self._counts = counts

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._file.read(None if size < 0 else size)
        self._counts.bytes_read += len(content)
        return content

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True
