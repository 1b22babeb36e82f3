"""`raydiff summarize` killed with SIGKILL, again and again, then left to finish.

The real command, the bundled model, a Ray cluster of its own each time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ..processes import descendants
from .commands import command
from .conftest import read_outputs

SAMPLE = Path(__file__).parents[2] / "jobs" / "sample.parquet"
SHARD_ROWS = 4
DEADLINE_S = 600.0
AGENTS = ("DashboardAgent", "RuntimeEnvAgent")
"""Ray's own agents notice a minute or two late that their node is gone; they write no output."""


@dataclass
class Drill:
    """A corpus, an output directory, and the command over them."""

    source: Path
    output: Path
    log: Path

    @property
    def parts(self) -> dict[str, int]:
        """Committed parts and when they were written."""
        return {p.name: p.stat().st_mtime_ns for p in self.output.glob("part-*.parquet")}

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[str]]:
        arguments = [str(self.source), str(self.output), "--shard-rows", str(SHARD_ROWS)]
        with (
            self.log.open("a") as errors,
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "raydiff",
                    "summarize",
                    *arguments,
                    "--steps",
                    "8",
                    "--json",
                ],
                env={**os.environ, "RAY_ADDRESS": "local"},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)

    def kill_once(self, new_parts: int, delay_s: float) -> int:
        """SIGKILL the driver `delay_s` after it committed `new_parts` more; returns how many."""
        before = self.parts
        with self.started() as process:
            wait_until(lambda: len(self.parts) >= len(before) + new_parts or ended(process))
            time.sleep(delay_s)
            assert not ended(process), self.log.read_text()
            family = descendants(process.pid)
            process.kill()
            process.wait()
        wait_until(lambda: not any(is_worker(pid) for pid in family))
        after = self.parts
        assert {name: after.get(name) for name in before} == before
        time.sleep(1.0)
        assert self.parts == after, "something wrote after its driver was dead"
        return len(after) - len(before)

    def finish(self) -> dict[str, object]:
        with self.started() as process:
            out, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, self.log.read_text()
        report: dict[str, object] = json.loads(out.splitlines()[-1])
        return report


def ended(process: subprocess.Popen[str]) -> bool:
    return process.poll() is not None


def is_worker(pid: int) -> bool:
    name = command(pid)
    return bool(name) and not any(agent in name for agent in AGENTS)


def wait_until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def drill(folder: Path, rows: int) -> Drill:
    source = folder / "corpus.parquet"
    pq.write_table(pq.read_table(SAMPLE).slice(0, rows), source)
    return Drill(source, folder / "out", folder / "stderr")


def check(subject: Drill, rows: int, kills: list[int]) -> None:
    """Finish the run: every document once, committed shards neither touched nor sent again."""
    committed = subject.parts
    report = subject.finish()
    shards = rows // SHARD_ROWS
    assert {name: subject.parts[name] for name in committed} == committed
    session = report["session"]
    assert isinstance(session, dict)
    assert session["shards"] == shards - len(committed)
    good, bad = read_outputs(subject.output)
    assert bad == []
    assert [row["source_row"] for row in good] == list(range(rows))
    assert (report["summarized"], report["shards"]) == (rows, shards)
    assert not list(subject.output.rglob(".tmp-*"))
    print(f"shards committed before each kill: {kills}; at the end: {shards}")


@pytest.mark.timeout(1200)
def test_a_run_killed_once_goes_on_where_it_was(tmp_path: Path) -> None:
    rows = 160  # many more shards than are in hand at a time
    subject = drill(tmp_path, rows)
    kills = [subject.kill_once(2, 0.0)]
    assert 2 <= len(subject.parts) < rows // SHARD_ROWS
    check(subject, rows, kills)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ctrl_c_leaves_a_run_that_can_go_on_and_no_process(tmp_path: Path) -> None:
    rows = 160
    subject = drill(tmp_path, rows)
    with subject.started() as process:
        wait_until(lambda: len(subject.parts) >= 2 or ended(process))
        family = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, subject.log.read_text()
    assert not [command(pid) for pid in family if command(pid)]
    report = json.loads((subject.output / "_run.json").read_text())
    assert (report["status"], report["reason"]) == ("stopped", "KeyboardInterrupt")
    check(subject, rows, [len(subject.parts)])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_run_killed_ten_times_loses_and_repeats_nothing(tmp_path: Path) -> None:
    rows = 500  # more than ten starts get through, however fast the machine
    subject = drill(tmp_path, rows)
    seed = random.SystemRandom().randrange(10**6)
    moments = random.Random(seed)
    print(f"seed {seed}")
    kills = [
        subject.kill_once(moments.choice((0, 1, 2, 4)), moments.uniform(0.0, 2.0))
        for _ in range(10)
    ]
    check(subject, rows, kills)
