"""`ray job submit` to a cluster with token authentication: followed, stopped, continued.

The real command, the bundled model, a head node as `ray start` makes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ..heads import Head, started_head
from .commands import command
from .conftest import read_outputs

ROOT = Path(__file__).parents[2]
ROWS = 160
WORKERS = ("jobs/summarize.py", "ShardWorker", "ServeReplica", "ServeController", "ProxyActor")
"""In the command lines of what a job starts."""


def submit(head: Head, submission_id: str, source: Path, output: Path, *flags: str) -> None:
    """Submit and return at once."""
    head.job(
        "submit",
        "--no-wait",
        f"--submission-id={submission_id}",
        f"--working-dir={ROOT}",
        "--",
        "python",
        "jobs/summarize.py",
        str(source),
        str(output),
        "--shard-rows=4",
        "--steps=8",
        *flags,
    )


def wait_until(condition: Callable[[], bool], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.3)


def is_now(head: Head, submission_id: str, status: str) -> bool:
    now = head.status(submission_id)
    ended = now in ("FAILED", "STOPPED", "SUCCEEDED")
    assert now == status or not ended, head.job("logs", submission_id).stdout
    return now == status


def parts(output: Path) -> dict[str, int]:
    """Committed parts and when they were written."""
    return {p.name: p.stat().st_mtime_ns for p in output.glob("part-*")}


def running(head: Head) -> list[str]:
    commands = (command(pid) for pid in head.processes())
    return [line for line in commands if any(word in line for word in WORKERS)]


@pytest.mark.timeout(600)
def test_a_job_is_followed_stopped_and_continued(tmp_path: Path) -> None:
    source, output = tmp_path / "in.parquet", tmp_path / "out"
    pq.write_table(pq.read_table(ROOT / "jobs" / "sample.parquet").slice(0, ROWS), source)
    with started_head() as head:
        submit(head, "first", source, output)

        def logs(submission_id: str = "first") -> str:
            return head.job("logs", submission_id).stdout

        wait_until(lambda: is_now(head, "first", "RUNNING"), logs)
        wait_until(lambda: len(parts(output)) >= 2, logs)
        assert len(running(head)) >= len(WORKERS)
        head.job("stop", "first")
        wait_until(lambda: is_now(head, "first", "STOPPED"), logs)
        wait_until(lambda: not running(head), lambda: str(running(head)))
        committed = parts(output)
        assert 2 <= len(committed) < ROWS // 4
        assert json.loads((output / "_run.json").read_text())["status"] == "stopped"
        assert "documents/s" in logs()
        assert head.token not in logs()

        submit(head, "second", source, output, "--json")
        wait_until(lambda: is_now(head, "second", "SUCCEEDED"), lambda: logs("second"))
        report = json.loads(
            next(line for line in logs("second").splitlines()[::-1] if line.startswith("{"))
        )
        wait_until(lambda: not running(head), lambda: str(running(head)))
    assert {
        p.name: p.stat().st_mtime_ns for p in output.glob("part-*")
    }.items() >= committed.items()
    good, bad = read_outputs(output)
    assert (sorted(row["source_row"] for row in good), bad) == (list(range(ROWS)), [])
    assert report["session"]["shards"] == ROWS // 4 - len(committed)
    assert (output / "_SUCCESS").exists()
