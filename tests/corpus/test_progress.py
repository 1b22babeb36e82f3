"""A bar for people, plain lines for logs."""

from __future__ import annotations

import io

from raydiff.corpus.commit import Totals
from raydiff.corpus.process import ShardReport
from raydiff.corpus.progress import Progress
from raydiff.corpus.report import Session


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def report(shard: int, *, errors: int = 0, start: float = 0.0, end: float = 10.0) -> ShardReport:
    return ShardReport(
        shard_id=str(shard),
        rows=100 - errors,
        errors=errors,
        totals=Totals(completion_tokens=500, forwards=250),
        started_s=1000.0 + start,
        finished_s=1000.0 + end,
    )


def test_plain_lines_come_at_the_start_now_and_then_and_at_the_end() -> None:
    stream, now = io.StringIO(), [0.0]
    progress = Progress(1000, 100, stream, clock=lambda: now[0])
    session = Session(replicas=2)
    for shard in range(9):
        now[0] += 2.0
        session.add(report(shard, errors=shard == 0, end=10.0 * (shard + 1)))
        progress.update(session)
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "100/1,000 documents"
    assert lines[1] == (
        "400/1,000 documents, 1 failed, 1,500 output tokens, 10.0 documents/s, "
        "50 output tokens/s, 2 replicas, 1 min 00 s left"
    )
    assert lines[-1] == (
        "1,000/1,000 documents, 1 failed, 4,500 output tokens, 10.0 documents/s, "
        "50 output tokens/s, 2 replicas"
    )
    assert len(lines) == 4


def test_a_terminal_gets_one_line_that_is_redrawn() -> None:
    stream = FakeTerminal()
    progress = Progress(200, 0, stream)
    session = Session()
    session.add(report(0))
    progress.update(session)
    progress.close()
    assert stream.getvalue().count("\n") == 1
    assert "[############............] 100/200 documents" in stream.getvalue()


def test_time_without_commits_repeats_no_line() -> None:
    stream, now = io.StringIO(), [0.0]
    progress = Progress(1000, 0, stream, clock=lambda: now[0])
    session = Session()
    session.add(report(0))
    for _ in range(100):
        now[0] += 1.0
        progress.update(session)
    assert len(stream.getvalue().splitlines()) == 2


def test_rates_are_those_of_the_last_minutes() -> None:
    """A second replica that comes after an hour is seen in the rate and in the time left."""
    stream = FakeTerminal()
    progress = Progress(100_000, 0, stream)
    session = Session()
    for shard in range(360):
        session.add(report(shard, start=10.0 * shard, end=10.0 * (shard + 1)))
        progress.update(session)
    assert " 10.0 documents/s" in stream.getvalue().rpartition("\r")[2]
    for shard in range(360, 400):
        end = 3600.0 + 5.0 * (shard - 359)
        session.add(report(shard, start=end - 5.0, end=end))
        progress.update(session)
    assert " 20.0 documents/s" in stream.getvalue().rpartition("\r")[2]
    assert "50 min 00 s left" in stream.getvalue().rpartition("\r")[2]


def test_lines_come_seldom_in_a_long_run() -> None:
    stream, now = io.StringIO(), [0.0]
    progress = Progress(10**9, 0, stream, clock=lambda: now[0])
    session = Session()
    for shard in range(24 * 60):
        now[0] += 60.0
        session.add(report(shard, start=60.0 * shard, end=60.0 * (shard + 1)))
        for _ in range(3):
            progress.update(session)
    assert len(stream.getvalue().splitlines()) <= 24 * 60 + 1


def test_no_documents_are_no_division_by_zero() -> None:
    stream = io.StringIO()
    Progress(0, 0, stream).close()
    assert stream.getvalue() == "0/0 documents\n"


def test_time_runs_from_the_first_read_to_the_last_commit() -> None:
    session = Session()
    session.add(report(0, start=5, end=30))
    session.add(report(1, start=0, end=20))
    assert (session.seconds, session.documents) == (30.0, 200)
    assert session.output_tokens_per_s == 1000 / 30
