"""A rerun costs a plan and a listing: it opens no committed file and no file of the input."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from raydiff.config import CorpusSettings
from raydiff.corpus.closing import close
from raydiff.corpus.directory import RunDirectory, open_run
from raydiff.corpus.ledger import read_ledger
from raydiff.corpus.report import Session
from raydiff.errors import RunConflict
from raydiff.request import Decoding

from .committing import WatchedFolder, commit, commit_all
from .conftest import WriteCorpus, read_outputs

SHARDS = 10_000
PENDING = 10

Open = Callable[..., RunDirectory]


@pytest.fixture
def settings(tmp_path: Path, write_corpus: WriteCorpus, toy_model: str) -> CorpusSettings:
    for name in "abc":
        write_corpus(tmp_path / "in" / f"{name}.parquet", [f"{name}{i}" for i in range(10)])
    return CorpusSettings(
        input=str(tmp_path / "in"), output=str(tmp_path / "out"), model=toy_model, shard_rows=4
    )


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> dict[str, WatchedFolder]:
    """Every folder that is opened, by its path; they count what is asked of them."""
    opened: dict[str, WatchedFolder] = {}

    def watch(location: str, param: str, storage: object) -> WatchedFolder:
        path = str(Path(location).absolute())
        return opened.setdefault(path, WatchedFolder(path))

    for module in ("directory", "inputs.finding"):
        monkeypatch.setattr(f"raydiff.corpus.{module}.open_folder", watch)
    return opened


def reopened(settings: CorpusSettings, **changes: Any) -> RunDirectory:
    with open_run(settings.model_copy(update=changes), Decoding()) as run:
        return run


def copy_part(run: RunDirectory, template: bytes, position: int) -> None:
    """A committed shard for the price of a file."""
    name = f"part-{run.plan.shards.columns.shard_id(position)}-r1-e0.parquet"
    Path(run.folder.path(name)).write_bytes(template)


def test_of_ten_thousand_shards_all_but_ten_committed_no_file_is_opened(
    tmp_path: Path, write_corpus: WriteCorpus, toy_model: str, folders: dict[str, WatchedFolder]
) -> None:
    for index in range(10):
        texts = ["t"] * (SHARDS // 10)
        write_corpus(tmp_path / "in" / f"{index}.parquet", texts, row_group_size=100)
    settings = CorpusSettings(
        input=str(tmp_path / "in"), output=str(tmp_path / "out"), model=toy_model, shard_rows=1
    )
    run = reopened(settings)
    assert len(run.plan.shards) == SHARDS
    report = commit(run.folder, run.plan.shards[0])
    template = run.folder.read(report.part.name)
    for position in range(1, SHARDS - PENDING):
        copy_part(run, template, position)
    for folder in folders.values():
        folder.asked.clear()

    again = reopened(settings)

    assert [shard.position for shard in again.pending] == list(range(SHARDS - PENDING, SHARDS))
    output, source = folders[str(tmp_path / "out")], folders[str(tmp_path / "in")]
    assert output.opened == {"plan.parquet", "files.parquet"}
    assert source.opened == set()
    assert source.asked["entries", ""] == 1


def test_the_end_of_a_run_opens_no_part_that_the_ledger_knows(
    settings: CorpusSettings, folders: dict[str, WatchedFolder]
) -> None:
    with open_run(settings, Decoding()) as run:
        first, second, *rest = run.pending
        commit_all(run, rest, failed=1)
        commit_all(run, [first, second], failed=1, lost=True)
        output = folders[settings.output]
        output.asked.clear()
        report = close(run, Session())
    opened = {name for name in output.opened if name.startswith("part-")}
    assert {name.split("-r")[0] for name in opened} == {
        f"part-{shard.shard_id}" for shard in (first, second)
    }
    assert report["output_tokens"] == 4 * len(run.plan.shards)
    assert report["error_types"] == {"EmptyDocument": len(run.plan.shards)}
    assert read_ledger(run.folder).num_rows == len(run.plan.shards)


def test_a_damaged_ledger_is_made_anew_from_the_parts(settings: CorpusSettings) -> None:
    with open_run(settings, Decoding()) as run:
        commit_all(run, failed=1)
        close(run, Session())
        table = run.shard_table()
        (name,) = run.folder.names("ledger")
        run.folder.put(name, b"PAR1 and then nothing")
        report = close(run, Session())
    assert report["output_tokens"] == 4 * len(run.plan.shards)
    assert run.shard_table().equals(table)


def test_reports_reach_the_ledger_when_a_run_is_stopped(settings: CorpusSettings) -> None:
    def stopped_by_hand() -> None:
        with open_run(settings, Decoding()) as run:
            commit_all(run, list(run.pending)[:3])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped_by_hand()
    assert reopened(settings).shard_table()["position"].to_pylist() == [0, 1, 2]


def test_a_touched_or_moved_input_is_the_same_input(
    settings: CorpusSettings, tmp_path: Path, folders: dict[str, WatchedFolder]
) -> None:
    reopened(settings)
    os.utime(tmp_path / "in" / "a.parquet", (1, 1))
    shutil.move(tmp_path / "in", tmp_path / "elsewhere")
    moved = {"input": str(tmp_path / "elsewhere")}
    reopened(settings, **moved)
    source = folders[moved["input"]]
    assert source.opened == {"a.parquet"}

    source.asked.clear()
    reopened(settings, **moved)
    assert source.opened == set(), "the version that was seen is kept"


def test_a_rewritten_file_of_the_same_size_is_refused(
    settings: CorpusSettings, tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    reopened(settings)
    path = tmp_path / "in" / "b.parquet"
    size = path.stat().st_size
    write_corpus(path, [f"z{i}" for i in range(10)])
    assert path.stat().st_size == size
    with pytest.raises(RunConflict, match=r"input files changed: b\.parquet\. Choose another"):
        reopened(settings)


def test_added_files_are_refused_with_the_remedy(
    settings: CorpusSettings, tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    reopened(settings)
    write_corpus(tmp_path / "in" / "d.parquet", ["new"])
    with pytest.raises(RunConflict, match=r"files added: d\.parquet\. Give --append"):
        reopened(settings)


def test_added_files_are_appended_as_further_shards(
    settings: CorpusSettings, tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    with open_run(settings, Decoding()) as run:
        commit_all(run)
        close(run, Session())
    before = list(run.plan.shards)
    write_corpus(tmp_path / "in" / "aa.parquet", ["new"] * 6)
    with open_run(settings.model_copy(update={"append": True}), Decoding()) as run:
        assert list(run.plan.shards)[: len(before)] == before
        assert [shard.rows for shard in run.pending] == [3, 3]
        assert not run.finished
        assert not run.folder.exists("_SUCCESS")
        commit_all(run)
        report = close(run, Session())
    assert (report["rows"], report["shards"]) == (36, len(before) + 2)
    (append,) = report["appends"]
    assert (append["files"], append["shards"], append["rows"]) == (1, 2, 6)
    assert run.folder.exists("_SUCCESS")
    good, _ = read_outputs(tmp_path / "out")
    assert len({(row["source_file"], row["source_row"]) for row in good}) == len(good) == 36
    assert reopened(settings).finished, "without --append nothing is new either"


def test_appending_nothing_is_nothing_to_do(settings: CorpusSettings) -> None:
    with open_run(settings, Decoding()) as run:
        commit_all(run)
        close(run, Session())
    plan = run.folder.read("plan.parquet")
    again = reopened(settings, append=True)
    assert again.finished
    assert again.folder.read("plan.parquet") == plan


def test_an_append_takes_neither_removed_nor_changed_files(
    settings: CorpusSettings, tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    reopened(settings)
    write_corpus(tmp_path / "in" / "d.parquet", ["new"])
    write_corpus(tmp_path / "in" / "b.parquet", ["other"])
    (tmp_path / "in" / "a.parquet").unlink()
    with pytest.raises(RunConflict) as caught:
        reopened(settings, append=True)
    message = str(caught.value)
    assert "removed: a.parquet; input files changed: b.parquet" in message
    assert "d.parquet" not in message


def test_an_append_under_other_options_is_refused(
    settings: CorpusSettings, tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    reopened(settings)
    write_corpus(tmp_path / "in" / "d.parquet", ["new"])
    with pytest.raises(RunConflict, match="seed was 0, now 1"):
        reopened(settings, append=True, seed=1)


def test_ten_nightly_appends_keep_every_row_once(
    settings: CorpusSettings, tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    rows = 30
    for night in range(10):
        with open_run(settings.model_copy(update={"append": True}), Decoding()) as run:
            commit_all(run, failed=night % 2)
            report = close(run, Session())
        assert (report["rows"], report["summarized"] + report["failed"]) == (rows, rows)
        assert len(report["appends"]) == night
        write_corpus(tmp_path / "in" / f"night-{9 - night}.parquet", ["n"] * (night + 1))
        rows += night + 1
    good, bad = read_outputs(tmp_path / "out")
    done = {(row["source_file"], row["source_row"]) for row in good + bad}
    assert len(done) == len(good) + len(bad) == rows - 10
    for path in (tmp_path / "in").glob("*.parquet"):
        planned = {(path.name, row) for row in range(pq.read_metadata(path).num_rows)}
        assert path.name == "night-0.parquet" or planned <= done
