"""One listing of names tells what is committed: each shard by exactly one part."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.parts import Part, list_parts, settle_parts
from raydiff.corpus.plan import FileFacts, Span, make_shard
from raydiff.corpus.planning import Plan, PlanBuilder
from raydiff.errors import RunConflict
from raydiff.storage import LocalFolder

SHARDS = 12
ROWS = 5


def plan_of(shards: int = SHARDS) -> Plan:
    found = [make_shard(i, (Span(file="a", row_start=i * ROWS, rows=ROWS),)) for i in range(shards)]
    facts = FileFacts(name="a", size_bytes=1, version="1", rows=shards * ROWS, digest="d")
    builder = PlanBuilder().add_all([*found, facts])
    files = builder.files()
    return Plan(shards=builder.shards(files), files=files, fingerprint={}, repeated_ids=None)


PLAN = plan_of()
RANGES: list[list[tuple[int, int]]] = [
    [],
    [(2, 3)],
    [(2, 3), (0, 5)],
    [(8, 11)],
    [(2, 3), (0, 5), (8, 9), (7, 11)],
]
"""In each other or beside each other, as compactions of compactions leave them."""


def single(position: int, errors: int = 0) -> Part:
    digest = int(PLAN.shards.columns.digest[position])
    return Part(first=position, last=position, digest=digest, rows=ROWS - errors, errors=errors)


def merged(first: int, last: int, errors: int = 0) -> Part:
    rows = (last - first + 1) * ROWS - errors
    return Part(first=first, last=last, digest=None, rows=rows, errors=errors)


def listed(folder: LocalFolder, *parts: Part, plan: Plan = PLAN) -> list[Part]:
    for part in parts:
        folder.put(part.name, b"x")
    return list(list_parts(folder, plan).committed)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_shard_that_any_part_has_is_committed_by_exactly_one(data: st.DataObject) -> None:
    errors = st.integers(0, ROWS)
    ranges = data.draw(st.sampled_from(RANGES))
    chosen = [
        *(single(p, data.draw(errors)) for p in data.draw(st.lists(st.integers(0, SHARDS - 1)))),
        *(merged(first, last, data.draw(errors)) for first, last in ranges),
    ]
    random.Random(0).shuffle(chosen)
    with tempfile.TemporaryDirectory() as path:
        folder = LocalFolder(path)
        for part in chosen:
            folder.put(part.name, b"x")
        committed = settle_parts(folder, PLAN)
        kept = list(committed)
        assert sorted(part.name for part in kept) == folder.names()
    covered = [p for part in kept for p in range(part.first, part.last + 1)]
    expected = {p for part in chosen for p in range(part.first, part.last + 1)}
    assert covered == sorted(expected)
    assert committed.shards == len(expected)
    assert [shard.position for shard in committed.pending] == sorted(set(range(SHARDS)) - expected)
    assert committed.documents == ROWS * len(expected)


def test_of_two_attempts_the_one_with_fewer_errors_counts(tmp_path: Path) -> None:
    assert listed(LocalFolder(tmp_path), single(3, 2), single(3, 1)) == [single(3, 1)]


def test_a_merged_part_counts_and_its_sources_do_not(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    assert listed(folder, single(2), single(3), merged(2, 3), single(4)) == [
        merged(2, 3),
        single(4),
    ]
    assert set(list_parts(folder, PLAN).superseded) == {single(2).name, single(3).name}


@pytest.mark.parametrize(
    "part",
    [
        Part(first=3, last=3, digest=0, rows=ROWS, errors=0),
        Part(first=SHARDS, last=SHARDS, digest=0, rows=ROWS, errors=0),
        Part(first=3, last=5, digest=None, rows=ROWS, errors=0),
        Part(first=10, last=SHARDS, digest=None, rows=3 * ROWS, errors=0),
        Part(first=5, last=3, digest=None, rows=ROWS, errors=0),
    ],
    ids=["other rows", "beyond the plan", "too few rows", "reaching beyond", "backwards"],
)
def test_parts_of_another_plan_are_refused(tmp_path: Path, part: Part) -> None:
    folder = LocalFolder(tmp_path)
    folder.put(part.name, b"x")
    with pytest.raises(RunConflict, match=rf"{part.name} is not a part of this run's plan"):
        settle_parts(folder, PLAN)


def test_ranges_that_cut_each_other_are_refused(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    listed(folder, merged(2, 5), merged(4, 7))
    with pytest.raises(RunConflict, match="not a part of this run's plan"):
        settle_parts(folder, PLAN)


def test_other_files_are_let_be(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.put("notes.txt", b"")
    settle_parts(folder, PLAN)
    assert list_parts(folder, PLAN).others == ("notes.txt",)
    assert folder.exists("notes.txt")


def test_a_plan_without_rows_has_no_parts(tmp_path: Path) -> None:
    plan = plan_of(0)
    assert list(settle_parts(LocalFolder(tmp_path), plan)) == []
    LocalFolder(tmp_path).put(single(0).name, b"x")
    with pytest.raises(RunConflict):
        settle_parts(LocalFolder(tmp_path), plan)
