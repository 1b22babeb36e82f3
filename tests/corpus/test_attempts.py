"""Marks on disk outlive workers: who took something along is known when a shard begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydiff.corpus.attempts import ShardAttempts
from raydiff.corpus.plan import Shard, Span
from raydiff.storage import LocalFolder

SHARD = Shard(shard_id="000000-00000000", spans=(Span(file="a", row_start=0, rows=4),))
OTHER = Shard(shard_id="000001-00000000", spans=(Span(file="a", row_start=4, rows=4),))


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    folder = LocalFolder(tmp_path)
    folder.make("attempts")
    return folder


def begin(folder: LocalFolder, shard: Shard = SHARD) -> tuple[ShardAttempts, int]:
    attempts = ShardAttempts(folder, shard)
    return attempts, attempts.begin()


def test_beginnings_are_counted_shard_by_shard(folder: LocalFolder) -> None:
    assert [begin(folder)[1] for _ in range(3)] == [0, 1, 2]
    assert begin(folder, OTHER)[1] == 0


def test_an_ended_shard_leaves_no_marks(folder: LocalFolder) -> None:
    attempts, _ = begin(folder)
    attempts.charge(2)
    attempts.end()
    assert list(folder.entries(recursive=True)) == []
    assert begin(folder)[1] == 0


def test_a_death_is_charged_to_the_document_at_risk(folder: LocalFolder) -> None:
    first, _ = begin(folder)
    with first.risk_document(0):
        pass
    gone = first.risk_document(1)
    gone.__enter__()  # and never left: the worker died
    second, deaths = begin(folder)
    assert (deaths, second.guilty, second.deaths(0), second.deaths(1)) == (1, [1], 0, 1)
    assert second.reason(1) == "WorkerDied"
    assert second.explained == 1


def test_charges_add_up_over_workers(folder: LocalFolder) -> None:
    first, _ = begin(folder)
    assert first.charge(3) == 1
    second, _ = begin(folder)
    assert second.charge(3) == 2
    assert second.reason(3) == "ReplicaDied"
    second.discharge(3)
    assert begin(folder)[0].deaths(3) == 1


def test_reading_has_marks_of_its_own(folder: LocalFolder) -> None:
    first, _ = begin(folder)
    gone = first.risk_span(0)
    gone.__enter__()
    second, _ = begin(folder)
    assert (second.span_deaths(0), second.guilty, second.explained) == (1, [], 1)


def test_a_mark_outlives_the_cleaning_of_a_late_rival(folder: LocalFolder) -> None:
    ours, _ = begin(folder)
    begin(folder)[0].end()
    assert ours.charge(1) == 1
