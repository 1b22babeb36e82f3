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
    session = Session()
    for shard in range(9):
        now[0] += 2.0
        session.add(report(shard, errors=shard == 0, end=10.0 * (shard + 1)))
        progress.update(session)
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "100/1000 documents"
    assert lines[1] == (
        "400/1000 documents, 1 failed, 10.0 documents/s, 50 output tokens/s, 1 min 00 s left"
    )
    assert lines[-1] == "1000/1000 documents, 1 failed, 10.0 documents/s, 50 output tokens/s"
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
