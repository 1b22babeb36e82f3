"""The driver: schedules pending shards over Ray Data workers and closes the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import ray
import ray.data
from ray.data import ActorPoolStrategy, Dataset
from ray.util import metrics

from raydiff.client import Client
from raydiff.config import APP_NAME, ModelSettings
from raydiff.corpus.closing import close
from raydiff.corpus.commit import ShardReport
from raydiff.corpus.counting import CommitCounter
from raydiff.corpus.directory import RunDirectory
from raydiff.corpus.fleet import Answers, ReplicaWatch, first_answer, fleet_of
from raydiff.corpus.limits import FailureLimit
from raydiff.corpus.live import Live
from raydiff.corpus.report import Session, started_report, stopped_report
from raydiff.corpus.shards import Integers
from raydiff.corpus.sizing import Fleet, Pool, size_pool
from raydiff.corpus.watchdog import supervised
from raydiff.corpus.worker import (
    POSITION_COLUMN,
    REPORT_COLUMN,
    ShardWorker,
    WorkerJob,
    decode_report,
)
from raydiff.errors import ClusterError
from raydiff.metrics import RayBackend
from raydiff.storage.shared import require_shared

WINDOW_SHARDS = 4096
"""Shards that Ray Data is given at a time. Each is a task, so that it is begun again alone and its
report comes at once, and an object in the driver's store, of which there may not be a million."""

WORKER_CPUS = 0.1
_NO_LIMIT = -1


def execute(
    run: RunDirectory,
    on_progress: Callable[[Session], None],
    *,
    app_name: str = APP_NAME,
) -> dict[str, Any]:
    """Send the pending shards through the app that serves the model, then close the run.

    This process must be connected to the cluster where the app runs. Whatever stops it, committed
    shards stay committed. `on_progress` is called after each commit and every few seconds, by one
    thread at a time.

    Returns:
        The report that `_run.json` holds.

    Raises:
        ClusterError: workers or replicas failed beyond what retries can mend.
        InputError: the input changed while the run was under way.
        TooManyFailures: a larger share of documents failed than the settings allow.
        UsageError: the cluster has several nodes, and a path that they do not share.
        RunConflict: another driver took the run over.
    """
    require_reachable(run)
    session = Session()
    counter = CommitCounter(RayBackend(metrics), _served_name(run))
    limit = FailureLimit(
        run.settings.max_failed_fraction,
        documents=run.committed.documents,
        failed=run.committed.failed,
    )
    live = Live(session, on_progress)
    run.write_report(started_report(run, session))
    try:
        # Whatever ends the loop, its threads end while Ray is there: they would start one anew.
        with closing(_reports(run, app_name, live)) as reports:
            for report in reports:
                run.ledger.add(report)
                counter.add(report)
                live.commit(report)
                limit.add(report)
                run.held.check()
        return close(run, session)
    except BaseException as error:
        with suppress(Exception):  # whatever keeps it from being written, `error` says more
            run.held.check()  # a run that was taken over has the report of another driver
            run.write_report(stopped_report(run, session, error))
        raise


def require_reachable(run: RunDirectory) -> None:
    """Refuse local paths that other nodes of the cluster do not see; see `require_shared`.

    Raises:
        UsageError: the cluster has several nodes, and a path that they do not share.
        ClusterError: a node did not answer.
    """
    require_shared(
        {"input": run.inputs.folder, "output": run.folder},
        shared_filesystem=run.settings.shared_filesystem,
    )


def _served_name(run: RunDirectory) -> str:
    settings = run.settings
    return ModelSettings(name=settings.served_as, model=settings.model).served_name


def _reports(run: RunDirectory, app_name: str, live: Live) -> Generator[ShardReport, None, None]:
    pending = run.pending
    if not pending:
        return
    _quieten_ray_data()
    client = Client.connect(_served_name(run), app_name)
    fleet = first_answer(client)
    live.look(fleet)
    with supervised(run.settings) as coordinator:

        def look(answers: Answers | None) -> None:
            nonlocal fleet
            if answers is not None:
                fleet = fleet_of(answers)
                coordinator.set_fleet.remote(fleet)
            live.look(fleet if answers is not None else None)

        with ReplicaWatch(client, look):
            for window in windows(pending.positions, WINDOW_SHARDS):
                pool = size_pool(
                    run.settings,
                    fleet,
                    tasks=len(window),
                    rows_per_shard=run.plan.rows / len(run.plan.shards),
                )
                job = _job(run, app_name, fleet, pool, coordinator)
                yield from _run(_dataset(window, job, pool))
                coordinator.forget_workers.remote()


def _dataset(positions: Sequence[int], job: WorkerJob, pool: Pool) -> Dataset:
    shards = [{POSITION_COLUMN: position} for position in positions]
    dataset = ray.data.from_items(shards, override_num_blocks=len(shards)).map_batches(
        ShardWorker,
        fn_constructor_kwargs={"job": job},
        batch_size=1,
        num_cpus=WORKER_CPUS,
        compute=ActorPoolStrategy(
            min_size=pool.least,
            max_size=pool.most,
            max_concurrent_calls_per_actor=pool.shards,
            max_tasks_in_flight_per_actor=2 * pool.shards,
        ),
    )
    dataset.context.enable_progress_bars = False
    dataset.context.print_on_execution_start = False
    # A shard of long documents may take longer than Ray Data waits for a row; calls have deadlines.
    dataset.context.execution_no_progress_timeout_s = _NO_LIMIT
    return dataset


def _run(dataset: Dataset) -> Iterator[ShardReport]:
    try:
        for row in dataset.iter_rows():
            yield decode_report(row[REPORT_COLUMN])
    except (ray.exceptions.RayError, RuntimeError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise ClusterError(
            f"the workers stopped: {type(error).__name__}: {first_line}. Committed shards "
            "are kept; run the same command again to continue."
        ) from error


def windows(positions: Sequence[int] | Integers, shards: int) -> Iterator[list[int]]:
    """Runs of at most `shards` consecutive positions."""
    for start in range(0, len(positions), shards):
        yield [int(position) for position in positions[start : start + shards]]


def _quieten_ray_data() -> None:
    """Keep Ray Data's remarks in its log files and off the terminal, where progress is shown."""
    own = set(logging.getLogger("ray.data").handlers) - set(logging.root.handlers)
    for handler in own:
        if isinstance(handler, logging.StreamHandler) and not isinstance(
            handler, logging.FileHandler
        ):
            handler.setLevel(logging.ERROR)


def _job(run: RunDirectory, app_name: str, fleet: Fleet, pool: Pool, coordinator: Any) -> WorkerJob:
    return WorkerJob(
        settings=run.settings,
        served_name=_served_name(run),
        app_name=app_name,
        input=run.inputs.folder,
        output=run.folder,
        layout=run.inputs.layout,
        decoding=run.decoding,
        style=run.style,
        fleet=fleet,
        workers=pool.least,
        coordinator=coordinator,
    )
