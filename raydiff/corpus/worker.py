"""The Ray Data worker: an async class that takes tasks of shards to their commits."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydiff.client import Client
from raydiff.config import CorpusSettings
from raydiff.corpus.commit import ShardReport
from raydiff.corpus.gate import CallGate
from raydiff.corpus.inputs import InputLayout
from raydiff.corpus.intake import Intake
from raydiff.corpus.pace import Pace
from raydiff.corpus.plan import Shard
from raydiff.corpus.planning import load_plan
from raydiff.corpus.presence import Presence
from raydiff.corpus.process import ShardProcessor
from raydiff.corpus.prompting import corpus_prompts
from raydiff.corpus.pulse import Pulse
from raydiff.corpus.request_lines import RequestReader
from raydiff.corpus.sharing import RunResults
from raydiff.corpus.sizing import Fleet, Sizer
from raydiff.corpus.work import WorkSettings
from raydiff.errors import ClusterError, InputError, RaydiffError
from raydiff.request import Decoding
from raydiff.retries import RetryPolicy
from raydiff.storage import Folder
from raydiff.text import PromptStyle, Tokenizer

_log = logging.getLogger(__name__)

POSITION_COLUMN = "position"
REPORT_COLUMN = "report"


@dataclass(frozen=True, kw_only=True)
class WorkerJob:
    """All that a worker needs to know of a run; it travels to the worker once."""

    settings: CorpusSettings
    served_name: str
    app_name: str
    input: Folder
    output: Folder
    layout: InputLayout
    decoding: Decoding
    """Resolved for the model."""
    style: PromptStyle
    """How the model is asked."""
    fleet: Fleet
    """The replicas as the driver found them."""
    workers: int
    """Workers that share them at first."""
    coordinator: Any = None
    """Handle of the run's `Coordinator`; without one, the worker is taken to be the only one."""


def decode_report(text: str) -> ShardReport:
    """The report that a worker returned.

    Raises:
        RaydiffError: the worker returned an error, which ends the run.
    """
    fields = json.loads(text)
    if "error" in fields:
        kind = InputError if fields["error"] == "InputError" else ClusterError
        raise kind(fields["message"])
    return ShardReport.from_json(text)


def _encode_error(error: RaydiffError) -> str:
    """Returned, not raised: Ray Data would bury the message in remarks of its own."""
    return json.dumps({"error": type(error).__name__, "message": str(error)})


class ShardWorker:
    """One actor of the pool. Tasks run on it concurrently, on one event loop."""

    def __init__(self, job: WorkerJob) -> None:
        settings = job.settings
        tokenizer = Tokenizer.load(settings.model)
        pulse = Pulse()
        self._plan = load_plan(job.output).shards.columns
        self._presence = None if job.coordinator is None else Presence(job.coordinator, pulse)
        sizer = Sizer(settings.documents_per_call, settings.calls_in_flight)
        sizer.follow(job.fleet, job.workers)
        self._gate = CallGate(sizer.calls, self._presence)
        self._intake = Intake(self._gate, settings.shards_in_flight)
        self._pace = Pace(
            Client.connect(
                job.served_name,
                job.app_name,
                # Whoever was in a call that died is suspected at once: no other replica dies.
                retry=RetryPolicy(max_deaths=1, stuck_floor_s=settings.stuck_call_s),
            ),
            gate=self._gate,
            intake=self._intake,
            sizer=sizer,
        )
        self._processor = ShardProcessor(
            input_folder=job.input,
            output=job.output,
            layout=job.layout,
            prompts=(
                RequestReader.of(settings, job.served_name)
                if settings.task.kind == "request"
                else corpus_prompts(settings, job.style, job.decoding, tokenizer)
            ),
            generator=self._pace,
            settings=WorkSettings.of(settings, job.decoding, tokenizer),
            gate=self._gate,
            call_timeout_s=settings.call_timeout_s,
            pulse=pulse,
            patience_s=settings.storage.patience_s,
            shared=None if job.coordinator is None else RunResults(job.coordinator),
        )

    async def __call__(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Process the shards at these positions of the plan in order, up to the first error."""
        if self._presence is not None:
            self._presence.start_pausing(self._gate)
            self._pace.start_following(self._presence.guidance)
        reports: list[str] = []
        try:
            for position in batch[POSITION_COLUMN]:
                report = await self._process(self._plan.shard(int(position)))
                reports.append(report)
        except RaydiffError as error:
            reports.append(_encode_error(error))
        return {REPORT_COLUMN: np.array(reports, dtype=object)}

    async def _process(self, shard: Shard) -> str:
        try:
            async with self._intake.shard() as queued:
                report = await self._processor.process(shard, queued)
        except RaydiffError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            _log.exception("Shard %s failed.", shard.shard_id)
            message = f"shard {shard.shard_id}: the worker failed with {error!r}."
            raise ClusterError(message) from error
        return report.to_json()
