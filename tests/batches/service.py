"""Batches without Ray: a job server that is a list, and jobs that run in the test itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from raydiff.batches.driver import drive
from raydiff.batches.files import FileRecord
from raydiff.batches.ids import new_batch_id, new_file_id
from raydiff.batches.jobs import JobStatus
from raydiff.batches.pieces import PieceWriter
from raydiff.batches.records import BatchRecord, BatchState
from raydiff.batches.store import BatchStore
from raydiff.config import BatchSettings, CorpusSettings, Endpoint
from raydiff.corpus.closing import close
from raydiff.corpus.directory import open_run
from raydiff.corpus.gate import CallGate
from raydiff.corpus.process import ShardProcessor
from raydiff.corpus.report import Session
from raydiff.corpus.request_lines import RequestReader
from raydiff.corpus.work import WorkSettings
from raydiff.errors import ClusterError
from raydiff.request import Decoding
from raydiff.text import Tokenizer

from ..corpus.fakes import FakeGenerator

MODEL = "toy"
COMPLETIONS: Endpoint = "/v1/completions"


class FakeJobs:
    """A job server whose jobs do nothing until the test says so."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobStatus] = {}
        self.submitted: list[str] = []
        self.down = False

    def status(self, job_id: str) -> JobStatus:
        if self.down:
            raise ClusterError("no job server")
        return self.jobs.get(job_id, "unknown")

    def submit(self, job_id: str, batch_id: str) -> None:
        if self.down:
            raise ClusterError("no job server")
        if job_id not in self.jobs:
            self.jobs[job_id] = "running"
            self.submitted.append(job_id)


class Killed(BaseException):
    """The job's process dies here."""


class Answering:
    """Runs a batch's lines through a stand-in for the replicas, in this process."""

    def __init__(self, model: str, *, die_after_shards: int | None = None) -> None:
        self.generator = FakeGenerator(model)
        self.die_after_shards = die_after_shards
        self.runs: list[CorpusSettings] = []

    def __call__(self, settings: CorpusSettings, app_name: str) -> None:
        self.runs.append(settings)
        with open_run(settings, Decoding()) as run:
            tokenizer = Tokenizer.load(settings.model)
            processor = ShardProcessor(
                input_folder=run.inputs.folder,
                output=run.folder,
                layout=run.inputs.layout,
                prompts=RequestReader.of(settings, settings.served_as),
                generator=self.generator,
                settings=WorkSettings.of(settings, run.decoding, tokenizer),
                gate=CallGate(2),
                call_timeout_s=30,
            )
            for number, shard in enumerate(run.pending):
                if number == self.die_after_shards:
                    raise Killed
                run.ledger.add(asyncio.run(processor.process(shard)))
            close(run, Session())


def line(number: int, **changes: Any) -> dict[str, Any]:
    """A sound line of a batch's input, with fields changed or, where `None`, left out."""
    body = {"model": MODEL, "prompt": f"text {number}", "seed": 1, "max_tokens": 8}
    fields = {"custom_id": f"id-{number}", "method": "POST", "url": COMPLETIONS, "body": body}
    return {k: v for k, v in {**fields, **changes}.items() if v is not None}


def jsonl(lines: Iterable[Any]) -> bytes:
    """Lines as a file's content; bytes stay as they are."""
    return b"".join(
        (each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in lines
    )


class Service:
    """A store with a key's files and batches."""

    def __init__(self, settings: BatchSettings, model: str, key_id: str = "ann") -> None:
        self.store = BatchStore(settings)
        self.model = model
        self.key_id = key_id
        self.now_s = 1_800_000_000.0

    def upload(self, content: bytes) -> FileRecord:
        """A file of the key's."""
        file_id = new_file_id(self.now_s)
        with PieceWriter(self.store.folder, file_id, piece_bytes=1000) as writer:
            writer.write(content)
        record = FileRecord(
            id=file_id,
            bytes=writer.size_bytes,
            created_at=int(self.now_s),
            filename="in.jsonl",
            purpose="batch",
            pieces=writer.pieces,
        )
        self.store.files.add(self.key_id, record)
        return record

    def create(self, lines: Sequence[Any], endpoint: Endpoint = COMPLETIONS) -> str:
        """A new batch over these lines; its id."""
        record = BatchRecord(
            id=new_batch_id(self.now_s),
            key_id=self.key_id,
            endpoint=endpoint,
            input_file_id=self.upload(jsonl(lines)).id,
            created_at=int(self.now_s),
            app_name="raydiff",
            models={MODEL: self.model},
            fingerprints={MODEL: "fp"},
        )
        self.store.add(record)
        return record.id

    def drive(self, batch_id: str, execute: Answering) -> BatchState:
        """What the batch's job does, here and now."""
        drive(self.store, batch_id, execute, now=lambda: self.now_s)
        return self.state(batch_id)

    def state(self, batch_id: str) -> BatchState:
        """The batch as it stands."""
        found = self.store.find(self.key_id, batch_id)
        assert found is not None
        return found

    def lines_of(self, file_id: str | None) -> list[dict[str, Any]]:
        """The lines of an output or error file; none if there is no such file."""
        if file_id is None:
            return []
        record = self.store.files.find(self.key_id, file_id)
        assert record is not None
        content = b"".join(self.store.files.content(record))
        assert len(content) == record.bytes
        return [json.loads(each) for each in content.splitlines()]

    def results(self, batch_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Output and error lines by `custom_id`, no id twice."""
        ended = self.state(batch_id).ended
        assert ended is not None
        output = self.lines_of(ended.output_file_id)
        errors = self.lines_of(ended.error_file_id)
        ids = [each["custom_id"] for each in (*output, *errors)]
        assert len(ids) == len(set(ids))
        return {e["custom_id"]: e for e in output}, {e["custom_id"]: e for e in errors}


def run_files(location: Path, batch_id: str) -> dict[str, int]:
    """Committed parts of a batch on disk, and when they were written."""
    folder = location / "batches" / batch_id / "run"
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*")}
