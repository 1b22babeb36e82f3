"""The part file is the commit record; what no part names does not count."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.corpus.commit import (
    Part,
    Totals,
    commit_shard,
    read_details,
    remove_unnamed_errors,
    settle_parts,
)
from raydiff.corpus.plan import Shard, Span
from raydiff.corpus.storage import LocalFolder

SHARD = Shard(
    shard_id="000003-0123abcd", spans=(Span(file="a.parquet", row_start=0, rows=5, stop_group=1),)
)
TOTALS = Totals(prompt_tokens=50, completion_tokens=20, forwards=10)


def summaries(rows: int) -> pa.Table:
    return pa.table({"id": [str(i) for i in range(rows)], "summary": ["s"] * rows})


def errors(rows: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([str(i) for i in range(rows)], pa.string()),
            "error_type": pa.array(["EmptyDocument"] * rows, pa.string()),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    folder = LocalFolder(tmp_path)
    folder.make("errors")
    return folder


def commit(folder: LocalFolder, failed: int) -> Part:
    return commit_shard(folder, SHARD, summaries(5 - failed), errors(failed), TOTALS)


def test_the_name_says_what_the_part_holds(folder: LocalFolder) -> None:
    part = commit(folder, 2)
    assert part.name == "part-000003-0123abcd-r3-e2.parquet"
    assert Part.parse(part.name) == part
    assert pq.read_table(folder.path(part.name)).num_rows == 3


@pytest.mark.parametrize(
    "name", ["plan.parquet", "part-0.parquet", "part-000003-0123abcd-r3-e2.parquet.bak", "_SUCCESS"]
)
def test_other_names_are_no_parts(name: str) -> None:
    assert Part.parse(name) is None


def test_a_part_of_failures_only_is_still_written(folder: LocalFolder) -> None:
    part = commit(folder, 5)
    assert pq.read_table(folder.path(part.name)).num_rows == 0
    assert settle_parts(folder) == {SHARD.shard_id: part}


def test_metadata_names_the_errors_file_and_the_totals(folder: LocalFolder) -> None:
    details = read_details(folder, commit(folder, 2))
    assert details.totals == TOTALS
    assert details.error_types == {"EmptyDocument": 2}
    assert folder.names("errors") == [details.errors_file]


def test_without_failures_there_is_no_errors_file(folder: LocalFolder) -> None:
    assert read_details(folder, commit(folder, 0)).errors_file is None
    assert folder.names("errors") == []


def test_a_kill_before_the_part_leaves_nothing_committed(
    folder: LocalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalFolder.put

    def die_at_the_part(self: LocalFolder, name: str, content: bytes) -> None:
        if name.startswith("part-"):
            raise KeyboardInterrupt
        real(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "put", die_at_the_part)
        with pytest.raises(KeyboardInterrupt):
            commit(folder, 2)
    assert settle_parts(folder) == {}
    assert len(folder.names("errors")) == 1

    part = commit(folder, 2)
    assert remove_unnamed_errors(folder, {SHARD.shard_id: part}) == 1
    assert folder.names("errors") == [read_details(folder, part).errors_file]


def test_errors_of_uncommitted_or_clean_shards_are_removed(folder: LocalFolder) -> None:
    commit(folder, 2)
    assert remove_unnamed_errors(folder, {}) == 1
    commit(folder, 2)
    assert remove_unnamed_errors(folder, {SHARD.shard_id: Part(SHARD.shard_id, 5, 0)}) == 1


def test_committing_twice_is_committing_once(folder: LocalFolder) -> None:
    commit(folder, 2)
    commit(folder, 2)
    parts = settle_parts(folder)
    remove_unnamed_errors(folder, parts)
    assert len(parts) == 1
    assert len(folder.names("errors")) == 1


def test_of_two_attempts_the_one_with_fewer_failures_stays(folder: LocalFolder) -> None:
    commit(folder, 2)
    better = commit(folder, 1)
    assert settle_parts(folder) == {SHARD.shard_id: better}
    assert [n for n in folder.names() if n.startswith("part-")] == [better.name]


def test_totals_add_up() -> None:
    assert Totals(prompt_tokens=100, completion_tokens=40, forwards=20) == TOTALS + TOTALS
