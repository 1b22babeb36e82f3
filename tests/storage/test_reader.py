"""A broken read is asked for again; what cannot be mended reaches whoever reads, unchanged."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.errors import StorageError
from raydiff.storage.reader import PIECE_BYTES, S3Reader


class Flaky:
    """A file of pyarrow's whose reads can be made to fail or to come short."""

    def __init__(
        self, content: bytes, spoil: Callable[[bytes], bytes], etag: bytes = b"same"
    ) -> None:
        self._content = content
        self._etag = etag
        self._spoil = spoil
        self._position = 0

    def size(self) -> int:
        return len(self._content)

    def metadata(self) -> dict[str, bytes]:
        return {"ETag": self._etag}

    def seek(self, position: int) -> None:
        self._position = position

    def read_buffer(self, size: int) -> pa.Buffer:
        return pa.py_buffer(self._spoil(self._content[self._position : self._position + size]))

    def close(self) -> None:
        pass


def opened(
    content: bytes, spoil: Callable[[bytes], bytes], head: Callable[[], object] = lambda: None
) -> pa.NativeFile:
    def open_file() -> Any:
        return Flaky(content, spoil)

    reader = S3Reader(open_file=open_file, head=head, uri="s3://bucket/a", patience_s=5)
    return pa.PythonFile(reader, mode="r")


def test_an_answer_that_comes_short_is_asked_for_again() -> None:
    content = os.urandom(1000)
    answers = iter([400, 0, 1000])
    with opened(content, lambda block: block[: next(answers)]) as stream:
        assert stream.read() == content
    assert next(answers, None) is None


def test_a_broken_piece_costs_only_itself() -> None:
    content = os.urandom(2 * PIECE_BYTES + 1)
    asked: list[int] = []

    def spoil(block: bytes) -> bytes:
        asked.append(len(block))
        if len(asked) == 2:
            raise OSError("curl: connection reset")
        return block

    with opened(content, spoil) as stream:
        assert stream.read() == content
    assert asked == [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 1]


def test_an_object_written_again_while_it_is_read_is_noticed() -> None:
    """Two halves of different files are no file."""
    etags = iter([b"one", b"two"])
    reader = S3Reader(
        open_file=lambda: cast(Any, Flaky(b"content", lambda block: block[:-1], next(etags))),
        head=lambda: None,
        uri="s3://bucket/a",
        patience_s=5,
    )
    with pytest.raises(StorageError, match="s3://bucket/a: the object was written again"):
        reader.read()


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": range(5000)}), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "cause", [StorageError("refused"), FileNotFoundError(errno.ENOENT, "gone", "s3://bucket/a")]
)
def test_a_refusal_reaches_the_reader_of_parquet_as_it_is(cause: Exception) -> None:
    """Not as a damaged file: its rows would be taken for corrupt."""
    broken = False

    def spoil(block: bytes) -> bytes:
        if broken:
            raise OSError("AWS Error ACCESS_DENIED")
        return block

    def head() -> None:
        raise cause

    with opened(parquet(), spoil, head) as stream:
        file = pq.ParquetFile(stream)
        broken = True
        with pytest.raises(type(cause)) as caught:
            file.read()
    assert caught.value.args == cause.args
