"""A store that throttles, fails, cuts connections or is away costs time, and nothing else."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.errors import StorageError
from raydiff.storage.reader import PIECE_BYTES
from raydiff.storage.s3 import S3Folder

from .conftest import MakeFolder
from .proxy import FaultProxy

FAULTS = ["slow_down", "cut_body", "lose_answer"]


def run_life(folder: S3Folder) -> None:
    """Write, list, read and delete, checking every answer."""
    contents = {f"part-{i:02d}": os.urandom(3000 + i) for i in range(12)}
    for name, content in contents.items():
        folder.put(name, content)
    assert folder.create("mark", b"mine")
    assert not folder.create("mark", b"other")
    assert {e.name: e.size_bytes for e in folder.entries()} == {
        "mark": 4,
        **{name: len(content) for name, content in contents.items()},
    }
    for name, content in contents.items():
        assert folder.read(name) == content
        with folder.open(name) as stream:
            assert stream.read() == content
    assert not folder.exists("absent")
    folder.delete_many(contents)
    assert folder.names() == ["mark"]


@pytest.mark.parametrize("fault", FAULTS)
def test_every_operation_outlasts_every_fault(
    folder: S3Folder, proxy: FaultProxy, fault: str
) -> None:
    setattr(proxy, fault, 0.25)
    run_life(folder)
    assert proxy.counts[fault] > 3


def test_parquet_is_read_across_cut_connections(folder: S3Folder, proxy: FaultProxy) -> None:
    table = pa.table({"id": range(20_000), "text": [os.urandom(20).hex() for _ in range(20_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2_000, compression="none")
    folder.put("a.parquet", sink.getvalue())
    proxy.cut_body = 0.4
    with folder.open("a.parquet") as stream:
        batches = list(pq.ParquetFile(stream).iter_batches(batch_size=1_000, columns=["text"]))
    assert pa.Table.from_batches(batches).equals(table.select(["text"]))
    assert proxy.counts["cut_body"] > 3


def test_a_long_read_goes_on_where_it_was_cut(folder: S3Folder, proxy: FaultProxy) -> None:
    content = os.urandom(2 * PIECE_BYTES + 5)
    folder.put("a", content)
    proxy.cut_body = 0.4
    passed = proxy.counts["passed"]
    with folder.open("a") as stream:
        assert stream.read() == content
    assert proxy.counts["cut_body"] > 0
    assert proxy.counts["passed"] - passed >= 3  # of three pieces, each came through once


def test_slow_answers_are_waited_for(folder: S3Folder, proxy: FaultProxy) -> None:
    content = os.urandom(300_000)
    folder.put("a", content)
    proxy.bytes_per_s = 400_000
    assert folder.read("a") == content
    with folder.open("a") as stream:
        assert stream.read() == content


@pytest.mark.parametrize("hangs", [False, True])
def test_an_outage_is_waited_out(
    folder: S3Folder, proxy: FaultProxy, hangs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder.put("a", b"one")
    opened = folder.open("a")
    work: list[Callable[[], object]] = [
        lambda: folder.put("b", b"two"),
        lambda: folder.names(),
        lambda: folder.read("a"),
        lambda: folder.open("a").read(),
        lambda: opened.read(),
    ]
    proxy.begin_outage(hangs=hangs)
    timer = threading.Timer(2, proxy.end_outage)
    timer.start()
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(len(work)) as pool:
        answers = list(pool.map(lambda call: call(), work))
    timer.join()
    assert answers[2:] == [b"one"] * 3
    assert folder.names() == ["a", "b"]
    assert proxy.counts["outage"] >= len(work)


def test_patience_ends_with_what_was_tried_and_what_to_do(
    make_folder: MakeFolder, proxy: FaultProxy
) -> None:
    folder = make_folder(patience_s=0.5)
    folder.put("a", b"one")
    stream = folder.open("a")
    with proxy.outage():
        for call, operation in ((lambda: folder.put("b", b""), "PutObject"), (stream.read, "Head")):
            with pytest.raises(StorageError) as caught:
                call()
            message = str(caught.value)
            assert folder.uri in message
            assert operation in message
            assert proxy.url in message
            assert "run the same command again" in message
