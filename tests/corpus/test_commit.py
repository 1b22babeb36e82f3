"""The part file is the commit record; what no part names does not count."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.corpus.commit import (
    ShardReport,
    Totals,
    checksum,
    read_details,
    read_report,
)
from raydiff.corpus.errors_files import remove_unnamed_errors
from raydiff.corpus.files import Files
from raydiff.corpus.parts import Committed, Part, settle_parts
from raydiff.corpus.plan import FileFacts, Shard, Span, make_shard
from raydiff.corpus.planning import Plan, PlanBuilder
from raydiff.storage import LocalFolder

from .committing import TOTALS, Killed, WatchedFolder, commit

SHARD = make_shard(0, (Span(file="a.parquet", row_start=0, rows=5, stop_group=1),))


def plan_of(*shards: Shard) -> Plan:
    """A plan of shards of one file."""
    rows = sum(shard.rows for shard in shards)
    facts = FileFacts(name="a.parquet", size_bytes=1, version="1", rows=rows, digest="d")
    builder = PlanBuilder().add_all([*shards, facts])
    files: Files = builder.files()
    return Plan(shards=builder.shards(files), files=files, fingerprint={}, repeated_ids=None)


PLAN = plan_of(SHARD)


@pytest.fixture
def folder(tmp_path: Path) -> WatchedFolder:
    folder = WatchedFolder(tmp_path)
    folder.make("errors")
    return folder


def settled(folder: LocalFolder) -> Committed:
    committed = settle_parts(folder, PLAN)
    remove_unnamed_errors(folder, committed)
    return committed


def test_the_name_says_what_the_part_holds(folder: LocalFolder) -> None:
    part = commit(folder, SHARD, 2).part
    assert part.name == f"part-{SHARD.shard_id}-r3-e2.parquet"
    assert Part.parse(part.name) == part
    assert pq.read_table(folder.path(part.name)).num_rows == 3


def test_the_name_of_a_merged_part_says_its_range() -> None:
    part = Part(first=3, last=120, digest=None, rows=11, errors=2)
    assert part.name == "part-00000003-to-00000120-r11-e2.parquet"
    assert Part.parse(part.name) == part
    assert part.shards == 118


@pytest.mark.parametrize(
    "name",
    ["plan.parquet", "part-0.parquet", "part-00000003-0123abcd-r3-e2.parquet.bak", "_SUCCESS"],
)
def test_other_names_are_no_parts(name: str) -> None:
    assert Part.parse(name) is None


def test_a_part_of_failures_only_is_still_written(folder: LocalFolder) -> None:
    part = commit(folder, SHARD, 5).part
    assert pq.read_table(folder.path(part.name)).num_rows == 0
    assert list(settled(folder)) == [part]


def test_metadata_has_what_the_report_says(folder: LocalFolder) -> None:
    report = commit(folder, SHARD, 2)
    details = read_details(folder, report.part)
    assert details.totals == report.totals == TOTALS
    assert details.error_types == report.error_types == {"EmptyDocument": 2}
    assert folder.names("errors") == [details.errors_file] == [report.errors_file]
    assert read_report(folder, report.part) == report


def test_the_report_has_the_checksums_of_both_files(folder: LocalFolder) -> None:
    report = commit(folder, SHARD, 2)
    part, errors = folder.read(report.part.name), folder.read(report.errors_file or "")
    assert (report.part_checksum, report.part_bytes) == (checksum(part), len(part))
    assert (report.errors_checksum, report.errors_bytes) == (checksum(errors), len(errors))


def test_a_report_survives_the_way_to_the_driver(folder: LocalFolder) -> None:
    report = commit(folder, SHARD, 2)
    assert ShardReport.from_json(report.to_json()) == report


def test_without_failures_there_is_no_errors_file(folder: LocalFolder) -> None:
    assert commit(folder, SHARD).errors_file is None
    assert folder.names("errors") == []


def test_a_kill_before_the_part_leaves_nothing_committed(folder: WatchedFolder) -> None:
    folder.kill_at = 1
    with pytest.raises(Killed):
        commit(folder, SHARD, 2)
    folder.kill_at = None
    assert len(folder.names("errors")) == 1
    assert list(settle_parts(folder, PLAN)) == []
    report = commit(folder, SHARD, 2)
    settled(folder)
    assert folder.names("errors") == [report.errors_file]


def test_errors_of_uncommitted_shards_are_removed(folder: LocalFolder) -> None:
    report = commit(folder, SHARD, 2)
    folder.delete(report.part.name)
    assert list(settled(folder)) == []
    assert folder.names("errors") == []


def test_the_second_of_two_attempts_leaves_the_first_and_reports_it(folder: LocalFolder) -> None:
    first = commit(folder, SHARD, 2)
    content = folder.read(first.part.name)
    assert commit(folder, SHARD, 2) == first
    assert folder.read(first.part.name) == content
    assert folder.names("errors") == [first.errors_file]


def test_a_part_that_was_written_though_the_store_says_no_keeps_its_errors(
    folder: WatchedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = folder.create

    def deny(name: str, content: bytes | pa.Buffer) -> bool:
        create(name, content)
        return False

    monkeypatch.setattr(folder, "create", deny)
    report = commit(folder, SHARD, 2)
    assert folder.names("errors") == [report.errors_file]


def test_of_two_attempts_the_one_with_fewer_failures_stays(folder: LocalFolder) -> None:
    commit(folder, SHARD, 2)
    better = commit(folder, SHARD, 1)
    assert list(settled(folder)) == [better.part]
    assert [n for n in folder.names() if n.startswith("part-")] == [better.part.name]
    assert folder.names("errors") == [better.errors_file]


def test_of_several_errors_files_of_a_shard_the_named_one_stays(folder: WatchedFolder) -> None:
    folder.kill_at = 1
    with pytest.raises(Killed):
        commit(folder, SHARD, 2)
    folder.kill_at = None
    report = commit(folder, SHARD, 2)
    assert len(folder.names("errors")) == 2
    settled(folder)
    assert folder.names("errors") == [report.errors_file]


def test_totals_add_up() -> None:
    twice = Totals(prompt_tokens=20, completion_tokens=8, forwards=4)
    assert twice == TOTALS + TOTALS
