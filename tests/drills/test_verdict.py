"""The judge of the drills sees each way in which a run can go wrong."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .corpus import KILLS_WORKER, Corpus, draw_corpus, sample_texts
from .outputs import LocalOutput, parts
from .verdict import Verdict, judge

ATTEMPTS = 2


class Case:
    """A finished run of eight documents, one of which kills workers."""

    def __init__(self, folder: Path) -> None:
        texts = sample_texts()
        self.corpus: Corpus = draw_corpus(
            folder / "corpus.parquet", random.Random(1), texts, 8, (KILLS_WORKER,)
        )
        (self.culprit,) = self.corpus.culprits
        self.reference = {text: f"summary of {text[:20]}" for text in self.corpus.texts}
        self.output = LocalOutput(folder / "out")
        (self.output.root / "errors").mkdir(parents=True)
        innocent = [row for row in range(8) if row != self.culprit]
        self.write_part("a", innocent[:4])
        self.write_part("b", innocent[4:])
        self.write_errors([(self.culprit, "WorkerDied", ATTEMPTS)])
        (self.output.root / "_SUCCESS").touch()
        self.committed: dict[str, str] = {}

    def write_part(self, name: str, rows: list[int], **changed: Any) -> None:
        records = [
            {
                "doc_id": f"doc-{row}",
                "source_file": "corpus.parquet",
                "source_row": row,
                "summary": self.reference[self.corpus.texts[row]],
                **changed,
            }
            for row in rows
        ]
        pq.write_table(pa.Table.from_pylist(records), self.output.root / f"part-{name}.parquet")

    def write_errors(self, rows: list[tuple[int, str, int]]) -> None:
        records = [
            {
                "doc_id": f"doc-{row}",
                "source_file": "corpus.parquet",
                "source_row": row,
                "error_type": kind,
                "attempts": attempts,
            }
            for row, kind, attempts in rows
        ]
        path = self.output.root / "errors" / "errors-a.parquet"
        pq.write_table(pa.Table.from_pylist(records), path)

    def judge(self) -> Verdict:
        return judge(self.corpus, self.output, self.reference, self.committed, ATTEMPTS)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def rows_of(case: Case) -> list[int]:
    return [row for row in range(8) if row != case.culprit]


def test_a_run_in_which_each_row_came_out_once_is_good(case: Case) -> None:
    case.committed = parts(case.output.files())
    verdict = case.judge()
    assert verdict.good, verdict.faults
    assert (verdict.rows_in, verdict.rows_out, verdict.errors_out) == (8, 7, 1)


def test_a_lost_row_is_seen(case: Case) -> None:
    case.write_part("b", rows_of(case)[4:-1])
    assert case.judge().faults == (f"row {rows_of(case)[-1]} is lost",)


def test_a_repeated_row_is_seen(case: Case) -> None:
    case.write_part("c", rows_of(case)[:1])
    assert case.judge().faults == (f"row {rows_of(case)[0]} came out 2 times",)


def test_another_text_is_seen(case: Case) -> None:
    case.write_part("b", rows_of(case)[4:], summary="something else")
    assert len(case.judge().faults) == 3


def test_an_innocent_row_among_the_errors_is_seen(case: Case) -> None:
    innocent = rows_of(case)[-1]
    case.write_part("b", rows_of(case)[4:-1])
    case.write_errors([(case.culprit, "WorkerDied", ATTEMPTS), (innocent, "EngineError", 3)])
    assert case.judge().faults == (f"row {innocent} failed with EngineError, expected None",)


def test_a_culprit_charged_wrongly_is_seen(case: Case) -> None:
    case.write_errors([(case.culprit, "WorkerDied", ATTEMPTS + 1)])
    assert case.judge().faults == (f"row {case.culprit} has 3 attempts, expected 2",)


def test_a_committed_file_that_was_written_again_is_seen(case: Case) -> None:
    case.committed = {**parts(case.output.files()), "part-a.parquet": "1"}
    assert case.judge().faults == ("committed file part-a.parquet was written again or is gone",)


def test_leftovers_and_a_missing_success_are_seen(case: Case) -> None:
    (case.output.root / ".tmp-1").touch()
    (case.output.root / "_SUCCESS").unlink()
    assert case.judge().faults == (".tmp-1 is left over", "there is no _SUCCESS")
