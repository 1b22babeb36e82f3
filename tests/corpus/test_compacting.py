"""Merging small parts changes no row, whatever happens meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.config import CorpusSettings
from raydiff.corpus.closing import close
from raydiff.corpus.commit import read_details
from raydiff.corpus.compacting import Compaction, compact, group_parts
from raydiff.corpus.directory import RunDirectory, open_run
from raydiff.corpus.ledger import read_ledger, shard_table
from raydiff.corpus.parts import Committed, list_parts
from raydiff.corpus.planning import Plan, load_plan
from raydiff.corpus.report import Session
from raydiff.corpus.runs import SavedRun
from raydiff.corpus.verifying import verify
from raydiff.errors import RunConflict
from raydiff.request import Decoding
from raydiff.storage import LocalFolder, hold

from .committing import WatchedFolder, commit_all, kill_everywhere
from .conftest import WriteCorpus, read_outputs

MIB = 2**20


@pytest.fixture
def settings(tmp_path: Path, write_corpus: WriteCorpus, toy_model: str) -> CorpusSettings:
    for name in "ab":
        write_corpus(tmp_path / "in" / f"{name}.parquet", [f"{name}{i}" for i in range(12)])
    return CorpusSettings(
        input=str(tmp_path / "in"), output=str(tmp_path / "out"), model=toy_model, shard_rows=2
    )


def run_of(settings: CorpusSettings, *, shards: int | None = None, failed: int = 1) -> RunDirectory:
    """A run with its first `shards` committed, or all of it and closed."""
    with open_run(settings, Decoding()) as run:
        commit_all(run, run.pending[:shards], failed=failed)
        if shards is None:
            close(run, Session())
    return run


def saved(folder: LocalFolder | Path | str) -> SavedRun:
    folder = folder if isinstance(folder, LocalFolder) else LocalFolder(folder)
    return SavedRun(folder=folder, plan=load_plan(folder))


def rows_of(output: Path) -> list[list[tuple[tuple[str, Any], ...]]]:
    return [sorted(tuple(row.items()) for row in rows) for rows in read_outputs(output)]


def test_parts_are_merged_up_to_the_target_and_rows_stay(
    settings: CorpusSettings, tmp_path: Path
) -> None:
    run = run_of(settings)
    before, table = rows_of(tmp_path / "out"), run.shard_table()
    merged: list[str] = []
    result = compact(saved(run.folder), MIB, lambda part: merged.append(part.name))
    assert merged == ["part-00000000-to-00000011-r12-e12.parquet"]
    assert [n for n in run.folder.names() if n.startswith("part-")] == merged
    assert len(run.folder.names("errors")) == 1
    assert rows_of(tmp_path / "out") == before
    assert run.folder.exists("_SUCCESS")
    assert (result.parts_before, result.parts_after, result.complete) == (12, 1, True)
    assert result.bytes_after == (tmp_path / "out" / merged[0]).stat().st_size
    assert shard_table(read_ledger(run.folder)).equals(table)


def test_rows_come_in_row_groups_fit_for_readers(settings: CorpusSettings, tmp_path: Path) -> None:
    compact(saved(run_of(settings).folder), MIB)
    (part,) = (tmp_path / "out").glob("part-*.parquet")
    assert pq.read_metadata(part).num_row_groups == 1
    rows = pq.read_table(part).to_pylist()
    assert [(r["source_file"], r["source_row"]) for r in rows] == sorted(
        (r["source_file"], r["source_row"]) for r in rows
    )


def test_a_merged_run_is_resumed_and_finished_like_any(settings: CorpusSettings) -> None:
    run = run_of(settings, shards=5)
    result = compact(saved(run.folder), MIB)
    assert (result.parts_after, result.complete) == (1, False)
    assert not run.folder.exists("_SUCCESS")
    with open_run(settings, Decoding()) as again:
        assert [shard.position for shard in again.pending] == list(range(5, 12))
        commit_all(again, failed=1)
        report = close(again, Session())
    assert (report["summarized"], report["failed"], report["output_tokens"]) == (12, 12, 48)
    assert verify(saved(run.folder)).sound
    compact(saved(run.folder), MIB)
    assert verify(saved(run.folder)).sound
    assert len(list_parts(run.folder, run.plan).committed) == 1


def test_only_neighbours_are_merged(settings: CorpusSettings) -> None:
    with open_run(settings, Decoding()) as run:
        shards = list(run.pending)
        commit_all(run, [shards[i] for i in (0, 1, 3, 4, 5, 7)])
    compact(saved(run.folder), MIB)
    parts = list_parts(run.folder, run.plan).committed
    assert [(part.first, part.last) for part in parts] == [(0, 1), (3, 5), (7, 7)]


def committed_of(plan: Plan, sizes: list[int]) -> Committed:
    count = len(sizes)
    table = {
        "first": list(range(count)),
        "last": list(range(count)),
        "merged": [False] * count,
        "rows": [1] * count,
        "errors": [0] * count,
        "size_bytes": sizes,
    }
    return Committed(
        plan,
        {name: pa.array(column).to_numpy(zero_copy_only=False) for name, column in table.items()},
    )


def test_large_parts_are_left_alone_and_groups_keep_to_the_target(
    settings: CorpusSettings,
) -> None:
    plan = run_of(settings, shards=0).plan
    committed = committed_of(plan, [40, 40, 30, 60, 10, 10, 49, 40, 5])
    assert list(group_parts(committed, 100)) == [[0, 1], [4, 5, 6], [7, 8]]


def test_a_second_compaction_finds_nothing_to_do(settings: CorpusSettings, tmp_path: Path) -> None:
    folder = WatchedFolder(run_of(settings).folder.root)
    compact(saved(folder), MIB)
    folder.asked.clear()
    result = compact(saved(folder), MIB)
    assert (result.parts_before, result.parts_after) == (1, 1)
    assert not [key for key in folder.asked if key[0] == "put" and key[1] != "_SUCCESS"]


def test_a_compaction_killed_at_any_change_loses_and_doubles_nothing(
    settings: CorpusSettings, tmp_path: Path
) -> None:
    original = run_of(settings)
    expected = rows_of(tmp_path / "out")
    kept = tmp_path / "kept"
    shutil.copytree(original.folder.root, kept)
    target = _two_groups(kept, original.plan)
    copies: Iterator[int] = iter(range(10_000))

    def begin() -> WatchedFolder:
        return WatchedFolder(shutil.copytree(kept, tmp_path / f"copy-{next(copies)}"))

    deaths = 0
    for folder in kill_everywhere(begin, lambda folder: _compact(folder, target)):
        deaths += 1
        if folder.exists("_SUCCESS"):
            # whoever reads a finished run reads every row once
            assert rows_of(folder.root) == expected
        with open_run(settings.model_copy(update={"output": folder.uri}), Decoding()) as run:
            assert not run.pending
            close(run, Session())
        assert rows_of(folder.root) == expected
        assert verify(saved(folder)).to_dict()["faults"] == []
        _compact(folder, target)
        assert rows_of(folder.root) == expected
        assert verify(saved(folder)).to_dict()["faults"] == []
        assert len(list_parts(folder, original.plan).committed) == 2
        shutil.rmtree(folder.root)
    assert deaths > 30, "one for each of the puts and deletes"


def _compact(folder: LocalFolder, target: int) -> Compaction:
    return compact(saved(folder), target)


def _two_groups(output: Path, plan: Plan) -> int:
    """A target that makes two merged parts."""
    committed = list_parts(LocalFolder(output), plan).committed
    target = int(committed.table["size_bytes"].sum()) * 2 // 3
    assert len(list(group_parts(committed, target))) == 2
    return target


def test_a_late_commit_of_a_merged_shard_does_not_count(settings: CorpusSettings) -> None:
    run = run_of(settings)
    compact(saved(run.folder), MIB)
    commit_all(run, run.plan.shards[3:5], failed=0, lost=True)
    with open_run(settings, Decoding()) as again:
        assert not again.pending
        close(again, Session())
    assert verify(saved(run.folder)).sound
    assert len([n for n in run.folder.names() if n.startswith("part-")]) == 1


def test_a_damaged_part_is_not_merged(settings: CorpusSettings) -> None:
    run = run_of(settings)
    part = next(n for n in run.folder.names() if n.startswith("part-00000002"))
    content = bytearray(run.folder.read(part))
    content[10] ^= 1
    run.folder.put(part, bytes(content))
    with pytest.raises(RunConflict, match=rf"{part} is damaged"):
        compact(saved(run.folder), MIB)
    assert run.folder.exists(part)


def test_the_ledger_is_rebuilt_from_merged_parts(settings: CorpusSettings) -> None:
    run = run_of(settings)
    compact(saved(run.folder), MIB)
    table = run.shard_table()
    run.folder.remove("ledger")
    assert {f.kind for f in verify(saved(run.folder)).faults} == {"ledger"}
    assert verify(saved(run.folder), rebuild_ledger=True).sound
    assert run.shard_table().equals(table)
    (part,) = list_parts(run.folder, run.plan).committed
    assert read_details(run.folder, part).totals.completion_tokens == 48


def test_a_run_that_a_driver_has_is_not_compacted(settings: CorpusSettings) -> None:
    run = run_of(settings)
    with hold(run.folder), pytest.raises(RunConflict, match="another raydiff process"):
        compact(saved(run.folder), MIB)


def test_parts_with_other_columns_are_merged_apart(settings: CorpusSettings) -> None:
    """As after an upgrade of raydiff in the middle of a run."""
    with open_run(settings, Decoding()) as run:
        commit_all(run, run.pending[:3], failed=0)
        for shard in run.pending[3:6]:
            _commit_with_a_column_more(run, shard.position)
    compact(saved(run.folder), MIB)
    parts = list_parts(run.folder, run.plan).committed
    assert [(part.first, part.last) for part in parts] == [(0, 2), (3, 5)]


def _commit_with_a_column_more(run: RunDirectory, position: int) -> None:
    from raydiff.corpus.commit import commit_shard

    from .committing import TOTALS, tables

    shard = run.plan.shards[position]
    good, bad = tables(shard)
    good = good.append_column("truncated", pa.array([False] * good.num_rows))
    commit_shard(run.folder, shard, good, bad, TOTALS, started_s=1.0)
