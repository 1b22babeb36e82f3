"""A sound run has no faults; a damaged one has its faults named, file by file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.config import CorpusSettings
from raydiff.corpus.closing import close
from raydiff.corpus.compacting import compact
from raydiff.corpus.directory import open_run
from raydiff.corpus.planning import load_plan
from raydiff.corpus.report import Session
from raydiff.corpus.runs import SavedRun
from raydiff.corpus.verifying import Verification, verify
from raydiff.errors import RunConflict
from raydiff.request import Decoding
from raydiff.storage import LocalFolder

from .committing import commit, commit_all
from .conftest import WriteCorpus


@pytest.fixture
def settings(tmp_path: Path, write_corpus: WriteCorpus, toy_model: str) -> CorpusSettings:
    for name in "ab":
        write_corpus(tmp_path / "in" / f"{name}.parquet", [f"{name}{i}" for i in range(12)])
    return CorpusSettings(
        input=str(tmp_path / "in"), output=str(tmp_path / "out"), model=toy_model, shard_rows=4
    )


@pytest.fixture
def folder(settings: CorpusSettings) -> LocalFolder:
    """A finished run of six shards of four rows, the last row of each failed."""
    with open_run(settings, Decoding()) as run:
        commit_all(run, failed=1)
        close(run, Session())
        return LocalFolder(run.folder.uri)


def verified(folder: LocalFolder) -> Verification:
    return verify(SavedRun(folder=folder, plan=load_plan(folder)))


def part(folder: LocalFolder, position: int) -> str:
    return next(n for n in folder.names() if n.startswith(f"part-{position:08d}"))


def errors(folder: LocalFolder, position: int) -> str:
    start = f"errors/errors-{position:08d}"
    return next(n for n in folder.names("errors") if n.startswith(start))


def rewrite(folder: LocalFolder, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a file's rows and keep its metadata."""
    path = folder.path(name)
    table = pq.read_table(path)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), path)


def test_a_finished_run_is_sound(folder: LocalFolder) -> None:
    found = verified(folder)
    assert found.sound
    assert (found.shards, found.committed, found.rows, found.failed) == (6, 6, 18, 6)
    assert found.repeated_ids == 0


def test_a_run_under_way_is_sound(settings: CorpusSettings) -> None:
    with open_run(settings, Decoding()) as run:
        commit_all(run, run.pending[2:3])
        commit_all(run, run.pending[3:4], lost=True)
    found = verified(LocalFolder(settings.output))
    assert found.sound
    assert (found.shards, found.committed) == (6, 2)


def test_errors_of_an_attempt_that_is_not_committed_are_no_fault(settings: CorpusSettings) -> None:
    with open_run(settings, Decoding()) as run:
        lost = commit(run.folder, run.pending[3], failed=1)
        run.folder.delete(lost.part.name)
    assert verified(LocalFolder(settings.output)).sound


def flip_a_byte(folder: LocalFolder) -> str:
    name = part(folder, 2)
    content = bytearray(folder.read(name))
    content[len(content) // 3] ^= 1
    folder.put(name, bytes(content))
    return name


def truncate(folder: LocalFolder) -> str:
    name = part(folder, 2)
    folder.put(name, folder.read(name)[:100])
    return name


def damage_errors(folder: LocalFolder) -> str:
    name = errors(folder, 1)
    content = bytearray(folder.read(name))
    content[10] ^= 1
    folder.put(name, bytes(content))
    return name


def lose_errors(folder: LocalFolder) -> str:
    name = errors(folder, 1)
    folder.delete(name)
    return name


def lose_a_part(folder: LocalFolder) -> str:
    folder.delete(part(folder, 3))
    return "_SUCCESS"


def drop_a_row(folder: LocalFolder) -> str:
    name = part(folder, 3)
    rewrite(folder, name, lambda table: table.slice(1))
    return name


def repeat_a_row(folder: LocalFolder) -> str:
    name = part(folder, 3)
    rewrite(folder, name, lambda table: pa.concat_tables([table.slice(1), table.slice(1, 1)]))
    return name


def mix_up_shards(folder: LocalFolder) -> str:
    name = part(folder, 3)
    other = pq.read_table(folder.path(part(folder, 4)))
    rewrite(folder, name, lambda table: other)
    return name


def rename_a_column(folder: LocalFolder) -> str:
    name = part(folder, 3)
    rewrite(
        folder,
        name,
        lambda table: table.rename_columns(
            ["text" if column == "summary" else column for column in table.column_names]
        ),
    )
    return name


def drop_the_identity(folder: LocalFolder) -> str:
    name = part(folder, 3)
    rewrite(folder, name, lambda table: table.drop_columns(["source_row"]))
    return name


def strip_metadata(folder: LocalFolder) -> str:
    name = part(folder, 3)
    pq.write_table(
        pq.read_table(folder.path(name)).replace_schema_metadata(None), folder.path(name)
    )
    return name


def add_a_foreign_part(folder: LocalFolder) -> str:
    name = "part-00000009-00000000-r4-e0.parquet"
    folder.put(name, folder.read(part(folder, 3)))
    return name


def add_a_second_attempt(folder: LocalFolder) -> str:
    name = part(folder, 3).replace("-r3-e1", "-r0-e4")
    folder.put(name, folder.read(part(folder, 3)))
    return name


def leave_errors_behind(folder: LocalFolder) -> str:
    name = errors(folder, 3)
    other = f"{name[: -len('.parquet') - 32]}{'0' * 32}.parquet"
    folder.put(other, folder.read(name))
    return other


def lose_the_ledger(folder: LocalFolder) -> str:
    folder.remove("ledger")
    return part(folder, 0)


def damage_the_ledger(folder: LocalFolder) -> str:
    (name,) = folder.names("ledger")
    folder.put(name, folder.read(name)[:-30])
    return name


def change_the_report(folder: LocalFolder) -> str:
    report = json.loads(folder.read("_run.json"))
    folder.put("_run.json", json.dumps({**report, "failed": 0}).encode())
    return "_run.json"


DAMAGES = {
    flip_a_byte: {"checksum"},
    truncate: {"unreadable"},
    damage_errors: {"checksum"},
    lose_errors: {"missing"},
    lose_a_part: {"incomplete", "errors"},
    drop_a_row: {"checksum", "count", "rows"},
    repeat_a_row: {"checksum", "rows"},
    mix_up_shards: {"checksum", "rows"},
    rename_a_column: {"checksum", "columns"},
    drop_the_identity: {"columns"},
    strip_metadata: {"checksum", "metadata"},
    add_a_foreign_part: {"foreign"},
    add_a_second_attempt: {"doubled"},
    leave_errors_behind: {"errors"},
    lose_the_ledger: {"ledger"},
    damage_the_ledger: {"ledger"},
    change_the_report: {"report"},
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_found_and_the_file_named(
    folder: LocalFolder, damage: Callable[[LocalFolder], str]
) -> None:
    name = damage(folder)
    found = verified(folder)
    assert not found.sound
    assert {fault.kind for fault in found.faults} >= DAMAGES[damage]
    assert name in {fault.file for fault in found.faults}


@pytest.mark.parametrize("damage", [flip_a_byte, drop_a_row, repeat_a_row, truncate])
def test_damage_in_merged_parts_is_found_too(
    folder: LocalFolder, damage: Callable[[LocalFolder], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compact(SavedRun(folder=folder, plan=load_plan(folder)), 2**20)
    assert verified(folder).sound
    monkeypatch.setattr(f"{__name__}.part", lambda folder, position: part_of_range(folder))
    name = damage(folder)
    assert name in {fault.file for fault in verified(folder).faults}


def part_of_range(folder: LocalFolder) -> str:
    return next(n for n in folder.names() if n.startswith("part-"))


def test_a_run_with_damage_can_be_mended_by_doing_the_shard_again(
    folder: LocalFolder, settings: CorpusSettings
) -> None:
    folder.delete(flip_a_byte(folder))
    with open_run(settings, Decoding()) as run:
        commit_all(run, failed=0)
        close(run, Session())
    assert verified(folder).sound


def test_a_damaged_part_that_the_ledger_does_not_know_is_named_by_who_needs_it(
    settings: CorpusSettings,
) -> None:
    with open_run(settings, Decoding()) as run:
        commit_all(run, lost=True)
        name = next(n for n in run.folder.names() if n.startswith("part-"))
        run.folder.put(name, b"PAR1")
        with pytest.raises(RunConflict, match=f"{name} is damaged: .* Delete it"):
            close(run, Session())


def test_ids_that_repeat_are_counted_and_are_no_fault(
    settings: CorpusSettings, tmp_path: Path
) -> None:
    with open_run(settings, Decoding()) as run:
        commit_all(run)
    folder = LocalFolder(settings.output)
    for position in (0, 1):
        name = part(folder, position)
        ids = pa.array(["same"] * 4)
        rewrite(folder, name, lambda table, ids=ids: table.set_column(0, "doc_id", ids))
    found = verified(folder)
    assert found.repeated_ids == 7
    assert {fault.kind for fault in found.faults} == {"checksum"}
