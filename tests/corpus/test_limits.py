"""A run that goes wrong is ended, but not by its first few documents."""

from __future__ import annotations

import pytest

from raydiff.corpus.commit import ShardReport, Totals
from raydiff.corpus.limits import FailureLimit
from raydiff.errors import TooManyFailures


def shard(documents: int, failed: int, error_type: str = "EngineError") -> ShardReport:
    return ShardReport(
        shard_id="00000000-00000000",
        rows=documents - failed,
        errors=failed,
        totals=Totals(),
        started_s=0.0,
        finished_s=1.0,
        error_types={error_type: failed} if failed else {},
    )


def test_more_failures_than_allowed_end_the_run() -> None:
    limit = FailureLimit(0.1, documents=0, failed=0)
    for _ in range(10):
        limit.add(shard(10, 1))
    with pytest.raises(TooManyFailures, match=r"12 of 110 documents failed.*0\.1 allows"):
        limit.add(shard(10, 2))


def test_the_first_documents_say_nothing_yet() -> None:
    limit = FailureLimit(0.1, documents=0, failed=0)
    limit.add(shard(99, 99))
    with pytest.raises(TooManyFailures):
        limit.add(shard(1, 0))


def test_earlier_starts_count() -> None:
    limit = FailureLimit(0.5, documents=1000, failed=500)
    with pytest.raises(TooManyFailures):
        limit.add(shard(1, 1))


def test_without_a_limit_all_may_fail() -> None:
    FailureLimit(1.0, documents=0, failed=0).add(shard(500, 500))


def test_workers_that_die_under_every_shard_end_the_run() -> None:
    limit = FailureLimit(1.0, documents=0, failed=0)
    for _ in range(3):
        limit.add(shard(4, 4, "WorkerDied"))
    with pytest.raises(TooManyFailures, match="4 of 4 shards were given up"):
        limit.add(shard(4, 4, "WorkerDied"))


def test_a_few_deadly_shards_among_many_do_not() -> None:
    limit = FailureLimit(1.0, documents=0, failed=0)
    for number in range(100):
        limit.add(shard(4, 4, "WorkerDied") if number % 20 == 0 else shard(4, 1, "WorkerDied"))
