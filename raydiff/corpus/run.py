"""The driver: schedules pending shards over Ray Data workers and closes the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext

from raydiff.config import ModelSettings
from raydiff.corpus.closing import close, count_repeated_ids
from raydiff.corpus.directory import RunDirectory
from raydiff.corpus.plan import Shard
from raydiff.corpus.process import ShardReport
from raydiff.corpus.report import Session, started_report
from raydiff.corpus.worker import ShardWorker, WorkerJob, decode_reports, encode_task
from raydiff.errors import ClusterError, RaydiffError

MAX_TASKS = 4096
"""Each task is an object in the driver's store; larger plans put several shards in a task."""

WORKER_CPUS = 0.1
_NO_PROGRESS_S = 24 * 3600.0


def execute(
    run: RunDirectory, *, replicas: int, on_progress: Callable[[Session], None]
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
    run.write_report(started_report(run, session))
    with ThreadPoolExecutor(1) as pool:
        repeated = pool.submit(count_repeated_ids, run.inputs)
        for report in _reports(run, replicas):
            session.add(report)
            on_progress(session)
        return close(run, session, repeated.result())


def _reports(run: RunDirectory, replicas: int) -> Iterator[ShardReport]:
    pending = run.pending
    if not pending:
        return
    tasks = [encode_task(shards) for shards in group_shards(pending)]
    workers = min(run.settings.workers or replicas, len(tasks))
    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    # A shard of long documents may take longer than Ray Data's half hour without a row.
    context.execution_no_progress_timeout_s = _NO_PROGRESS_S
    with DataContext.current(context):
        dataset = ray.data.from_items(tasks, override_num_blocks=len(tasks)).map_batches(
            ShardWorker,
            fn_constructor_kwargs={"job": _job(run)},
            batch_size=1,
            num_cpus=WORKER_CPUS,
            compute=ActorPoolStrategy(
                size=workers,
                max_concurrent_calls_per_actor=run.settings.shards_in_flight,
                max_tasks_in_flight_per_actor=2 * run.settings.shards_in_flight,
            ),
        )
        try:
            yield from decode_reports(dataset.iter_rows())
        except (ray.exceptions.RayError, RuntimeError) as error:
            raise _reason(error) from error


def group_shards(shards: Sequence[Shard], max_tasks: int = MAX_TASKS) -> list[list[Shard]]:
    """Runs of consecutive shards, one shard each unless that makes more than `max_tasks`."""
    size = -(-len(shards) // max_tasks)
    return [list(shards[i : i + size]) for i in range(0, len(shards), size)] if size else []


def _job(run: RunDirectory) -> WorkerJob:
    return WorkerJob(
        settings=run.settings,
        served_name=ModelSettings(model=run.settings.model).served_name,
        input_root=run.inputs.root,
        output=run.folder.root,
        columns=run.inputs.columns,
        decoding=run.decoding,
    )


def _reason(error: BaseException) -> RaydiffError:
    """The error of ours that a worker raised, from inside Ray's wrappers."""
    seen: BaseException | None = error
    while seen is not None:
        inner = getattr(seen, "cause", None)
        for candidate in (seen, inner):
            if isinstance(candidate, RaydiffError):
                return candidate
        seen = seen.__cause__ or (inner if isinstance(inner, BaseException) else None)
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return ClusterError(f"the workers stopped: {lines[-1]}")
