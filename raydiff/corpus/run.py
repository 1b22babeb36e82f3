"""The driver: schedules pending shards over Ray Data workers and closes the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
import ray.data
from ray import serve
from ray.data import ActorPoolStrategy
from ray.util import metrics

from raydiff.config import APP_NAME, ModelSettings, deployment_name
from raydiff.corpus.closing import close
from raydiff.corpus.counting import CommitCounter
from raydiff.corpus.directory import RunDirectory
from raydiff.corpus.plan import Shard
from raydiff.corpus.process import ShardReport
from raydiff.corpus.report import Session, started_report, stopped_report
from raydiff.corpus.worker import (
    REPORT_COLUMN,
    ShardWorker,
    WorkerJob,
    decode_report,
    encode_task,
)
from raydiff.errors import ClusterError
from raydiff.metrics import RayBackend

MAX_TASKS = 4096
"""Each task is an object in the driver's store; larger plans put several shards in a task."""

WORKER_CPUS = 0.1
_NO_LIMIT = -1


def execute(
    run: RunDirectory,
    on_progress: Callable[[Session], None],
    *,
    app_name: str = APP_NAME,
) -> dict[str, Any]:
    """Summarise the pending shards on the app that serves the model, then close the run.

    This process must be connected to the cluster where the app runs. Whatever stops it, committed
    shards stay committed.

    Returns:
        The report that `_run.json` holds.

    Raises:
        ClusterError: workers or replicas failed beyond what retries can mend.
        InputError: the input changed while the run was under way.
    """
    session = Session()
    counter = CommitCounter(RayBackend(metrics), _served_name(run))
    run.write_report(started_report(run, session))
    try:
        for report in _reports(run, app_name):
            session.add(report)
            counter.add(report)
            on_progress(session)
        return close(run, session)
    except BaseException as error:
        run.write_report(stopped_report(run, session, error))
        raise


def _served_name(run: RunDirectory) -> str:
    return ModelSettings(model=run.settings.model).served_name


def _reports(run: RunDirectory, app_name: str) -> Iterator[ShardReport]:
    pending = run.pending
    if not pending:
        return
    _quieten_ray_data()
    job = _job(run, app_name)
    tasks = [encode_task(shards) for shards in group_shards(pending)]
    workers = min(run.settings.workers or _running_replicas(job), len(tasks))
    dataset = ray.data.from_items(tasks, override_num_blocks=len(tasks)).map_batches(
        ShardWorker,
        fn_constructor_kwargs={"job": job},
        batch_size=1,
        num_cpus=WORKER_CPUS,
        compute=ActorPoolStrategy(
            size=workers,
            max_concurrent_calls_per_actor=run.settings.shards_in_flight,
            max_tasks_in_flight_per_actor=2 * run.settings.shards_in_flight,
        ),
    )
    dataset.context.enable_progress_bars = False
    dataset.context.print_on_execution_start = False
    # A shard of long documents may take longer than Ray Data waits for a row; calls have deadlines.
    dataset.context.execution_no_progress_timeout_s = _NO_LIMIT
    try:
        for row in dataset.iter_rows():
            yield decode_report(row[REPORT_COLUMN])
    except (ray.exceptions.RayError, RuntimeError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise ClusterError(
            f"the workers stopped: {type(error).__name__}: {first_line}. Committed shards "
            "are kept; run the same command again to continue."
        ) from error


def group_shards(shards: Sequence[Shard], max_tasks: int = MAX_TASKS) -> list[list[Shard]]:
    """Runs of consecutive shards, one shard each unless that makes more than `max_tasks`."""
    size = -(-len(shards) // max_tasks)
    return [list(shards[i : i + size]) for i in range(0, len(shards), size)] if size else []


def _quieten_ray_data() -> None:
    """Keep Ray Data's remarks in its log files and off the terminal, where progress is shown."""
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(
            handler, logging.FileHandler
        ):
            handler.setLevel(logging.ERROR)


def _job(run: RunDirectory, app_name: str) -> WorkerJob:
    return WorkerJob(
        settings=run.settings,
        served_name=_served_name(run),
        app_name=app_name,
        input=run.inputs.folder,
        output=run.folder,
        columns=run.inputs.columns,
        decoding=run.decoding,
        style=run.style,
    )


def _running_replicas(job: WorkerJob) -> int:
    application = serve.status().applications.get(job.app_name)
    deployment = application and application.deployments.get(deployment_name(job.served_name))
    if not deployment:
        raise ClusterError(f"No application {job.app_name!r} serves {job.served_name!r} here.")
    return max(1, int(deployment.replica_states.get("RUNNING", 0)))
