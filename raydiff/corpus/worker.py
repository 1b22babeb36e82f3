"""The Ray Data worker: an async class that takes tasks of shards to their commits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from raydiff.client import Client
from raydiff.config import CorpusSettings
from raydiff.corpus.files import Folder
from raydiff.corpus.inputs import Columns
from raydiff.corpus.plan import Shard
from raydiff.corpus.process import ShardProcessor, ShardReport
from raydiff.corpus.work import WorkSettings
from raydiff.errors import ClusterError
from raydiff.metrics import DOCUMENTS, SHARDS, Backend, RayBackend
from raydiff.request import Decoding
from raydiff.text import Tokenizer

TASK_COLUMN = "task"
REPORT_COLUMN = "report"


@dataclass(frozen=True, kw_only=True)
class WorkerJob:
    """All that a worker needs to know of a run; it travels to the worker once."""

    settings: CorpusSettings
    served_name: str
    input_root: Path
    output: Path
    columns: Columns
    decoding: Decoding
    """Resolved for the model."""


def encode_task(shards: Sequence[Shard]) -> dict[str, str]:
    """One task as the row that Ray Data carries."""
    return {TASK_COLUMN: json.dumps([asdict(shard) for shard in shards])}


def decode_reports(rows: Iterable[Mapping[str, Any]]) -> Iterable[ShardReport]:
    """The reports in the rows that workers returned, as they come."""
    return (ShardReport.from_json(row[REPORT_COLUMN]) for row in rows)


class ShardWorker:
    """One actor of the pool. Tasks run on it concurrently, on one event loop."""

    def __init__(self, job: WorkerJob) -> None:
        # Metric objects made before the worker's own process exists would lose their tags.
        from ray.util import metrics

        self._labels = {"model": job.served_name}
        self._metrics: Backend = RayBackend(metrics)
        settings = job.settings
        self._processor = ShardProcessor(
            input_root=job.input_root,
            output=Folder(job.output),
            columns=job.columns,
            tokenizer=Tokenizer.load(settings.model),
            generator=Client.connect(job.served_name),
            settings=WorkSettings(
                decoding=job.decoding,
                seed=settings.seed,
                documents_per_call=settings.documents_per_call,
                max_attempts=settings.max_attempts,
            ),
            calls_in_flight=settings.calls_in_flight * settings.shards_in_flight,
            call_timeout_s=settings.call_timeout_s,
        )

    async def __call__(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Process the tasks of a batch, shard by shard in order."""
        reports: list[str] = []
        for task in batch[TASK_COLUMN]:
            for fields in json.loads(task):
                report = await self._process(Shard(**fields))
                self._count(report)
                reports.append(report.to_json())
        return {REPORT_COLUMN: np.array(reports, dtype=object)}

    async def _process(self, shard: Shard) -> ShardReport:
        try:
            return await self._processor.process(shard)
        except asyncio.CancelledError as error:
            # Ray Data reports an escaping CancelledError as an unrelated TypeError.
            raise ClusterError(f"the worker of shard {shard.shard_id} was cancelled.") from error

    def _count(self, report: ShardReport) -> None:
        for outcome, amount in (("summarized", report.rows), ("failed", report.errors)):
            if amount:
                self._metrics.add(DOCUMENTS, amount, {**self._labels, "outcome": outcome})
        self._metrics.add(SHARDS, 1, self._labels)
