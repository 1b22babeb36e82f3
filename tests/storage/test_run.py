"""A whole run from bucket to bucket, through a bad network: the rows are those of a good day."""

from __future__ import annotations

import asyncio
import io
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.config import CorpusSettings, StorageSettings
from raydiff.corpus.closing import close
from raydiff.corpus.directory import RunDirectory, open_run
from raydiff.corpus.gate import CallGate
from raydiff.corpus.process import ShardProcessor
from raydiff.corpus.report import Session
from raydiff.corpus.work import WorkSettings
from raydiff.errors import RunConflict
from raydiff.request import Decoding
from raydiff.storage import Folder
from raydiff.text import DocumentPrompts

from ..corpus.fakes import FakeGenerator
from .proxy import FaultProxy
from .server import S3Server


def corpus() -> dict[str, bytes]:
    """Parquet files of an input: two of rows with ids, one of them cut into row groups, and one
    in a directory; some documents are empty."""
    files = {}
    for name, rows in (("a.parquet", 40), ("b.parquet", 17), ("sub/c.parquet", 5)):
        texts = [f"{name} text {i}" if i % 9 else "" for i in range(rows)]
        table = pa.table({"doc_id": range(rows), "text": texts})
        sink = io.BytesIO()
        pq.write_table(table, sink, row_group_size=16)
        files[name] = sink.getvalue()
    return files


def process_all(run: RunDirectory, generator: FakeGenerator) -> None:
    """What the workers do, in this process."""
    processor = ShardProcessor(
        input_folder=run.inputs.folder,
        output=run.folder,
        layout=run.inputs.layout,
        prompts=DocumentPrompts.of(generator.tokenizer, None, 16),
        generator=generator,
        settings=WorkSettings(
            decoding=Decoding(max_tokens=16, steps=4),
            seed=0,
            documents_per_call=4,
            max_attempts=3,
        ),
        gate=CallGate(4),
        call_timeout_s=60,
    )

    async def run_shards() -> None:
        for report in await asyncio.gather(*map(processor.process, run.pending)):
            run.ledger.add(report)

    asyncio.run(run_shards())


def rows(folder: Folder, under: str) -> list[dict[str, Any]]:
    """Rows of all Parquet files there, by place in the input."""
    names = (name for name in folder.names(under) if name.endswith(".parquet"))
    tables = [pq.read_table(pa.BufferReader(folder.read(name))) for name in names if "-" in name]
    found = [row for table in tables for row in table.to_pylist()]
    return sorted(found, key=lambda row: (row["source_file"], row["source_row"]))


def run_whole(settings: CorpusSettings) -> tuple[dict[str, Any], RunDirectory]:
    with open_run(settings, Decoding()) as run:
        process_all(run, FakeGenerator(settings.model))
        return close(run, Session()), run


@pytest.fixture
def on_disk(tmp_path: Path, toy_model: str) -> CorpusSettings:
    for name, content in corpus().items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return CorpusSettings(
        input=str(tmp_path / "in"), output=str(tmp_path / "out"), model=toy_model, shard_rows=8
    )


@pytest.fixture
def in_store(
    on_disk: CorpusSettings, server: S3Server, proxy: FaultProxy, credentials: None
) -> CorpusSettings:
    bucket = server.make_bucket()
    for name, content in corpus().items():
        server.client().put_object(Bucket=bucket, Key=f"in/{name}", Body=content)
    return on_disk.model_copy(
        update={
            "input": f"s3://{bucket}/in",
            "output": f"s3://{bucket}/out",
            "storage": StorageSettings(endpoint_url=proxy.url, patience_s=60),
        }
    )


def test_a_run_through_a_bad_network_has_the_rows_of_a_run_on_disk(
    on_disk: CorpusSettings, in_store: CorpusSettings, proxy: FaultProxy
) -> None:
    expected, there = run_whole(on_disk)
    proxy.slow_down, proxy.cut_body, proxy.lose_answer = 0.1, 0.1, 0.1
    outage = threading.Timer(1.0, proxy.begin_outage)
    recovery = threading.Timer(3.0, proxy.end_outage)
    outage.start()
    recovery.start()
    report, here = run_whole(in_store)
    recovery.join()
    proxy.heal()
    assert (report["summarized"], report["failed"]) == (54, 8)
    assert (report["summarized"], report["failed"]) == (expected["summarized"], expected["failed"])
    for under in ("", "errors"):
        assert rows(here.folder, under) == rows(there.folder, under)
    assert here.folder.exists("_SUCCESS")
    for fault in ("slow_down", "cut_body", "lose_answer", "outage"):
        assert proxy.counts[fault] > 0
    with open_run(in_store, Decoding()) as again:
        assert again.finished


def test_a_run_in_a_store_has_one_driver_at_a_time(in_store: CorpusSettings) -> None:
    with (
        open_run(in_store, Decoding()) as run,
        pytest.raises(RunConflict, match="is writing to"),
        open_run(in_store, Decoding()),
    ):
        pass
    with open_run(in_store, Decoding()) as again:
        assert len(again.pending) == len(run.pending)


def test_a_driver_that_was_replaced_does_not_write_the_end(in_store: CorpusSettings) -> None:
    hasty = StorageSettings(endpoint_url=in_store.storage.endpoint_url, lease_s=1)
    settings = in_store.model_copy(update={"storage": hasty})
    with open_run(settings, Decoding()) as run:
        process_all(run, FakeGenerator(settings.model))
        run.folder.put("_lease.json", b"another driver's")
        threading.Event().wait(1.1)
        with pytest.raises(RunConflict, match="has lost"):
            close(run, Session())
    assert not run.folder.exists("_SUCCESS")
    assert run.folder.read("_lease.json") == b"another driver's"
