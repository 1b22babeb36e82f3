"""The plan puts every row in exactly one shard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.cutting import cut_into_shards
from raydiff.corpus.inputs import InputFile, RowGroup
from raydiff.corpus.plan import PLAN_NAME, Plan, Shard, Span, load_plan, save_plan
from raydiff.corpus.storage import LocalFolder
from raydiff.errors import RunConflict


def input_file(name: str, rows: list[int], bytes_per_row: int = 10) -> InputFile:
    groups = tuple(RowGroup(rows=n, text_bytes=n * bytes_per_row) for n in rows)
    return InputFile(name=name, size_bytes=1, footer_digest="x", groups=groups)


group_rows = st.lists(st.integers(0, 40), max_size=12)


@settings(deadline=None)
@given(st.lists(group_rows, max_size=5), st.integers(1, 30), st.integers(1, 500))
def test_every_row_is_in_exactly_one_shard(
    files: list[list[int]], shard_rows: int, max_bytes: int
) -> None:
    inputs = [input_file(f"f{i}", rows) for i, rows in enumerate(files)]
    covered = [
        place
        for shard in cut_into_shards(inputs, shard_rows, max_bytes)
        for place in shard.places()
    ]
    assert covered == [(file.name, row) for file in inputs for row in range(file.rows)]


@settings(deadline=None)
@given(group_rows, st.integers(1, 30), st.integers(10, 500))
def test_no_shard_exceeds_its_rows_or_bytes(
    rows: list[int], shard_rows: int, max_bytes: int
) -> None:
    for shard in cut_into_shards([input_file("f", rows)], shard_rows, max_bytes):
        assert 0 < shard.rows <= shard_rows
        # a row is never cut, so one row above an even share may come on top
        assert shard.rows * 10 <= max_bytes + 10


@settings(deadline=None)
@given(group_rows, st.integers(1, 30))
def test_a_shard_lies_in_the_row_groups_it_names(rows: list[int], shard_rows: int) -> None:
    for shard in cut_into_shards([input_file("f", rows)], shard_rows):
        (span,) = shard.spans
        group_start = sum(rows[: span.first_group])
        assert group_start + span.skip_rows == span.row_start
        assert span.row_start + span.rows <= sum(rows[: span.stop_group])
        assert span.stop_group - span.first_group == 1 or span.skip_rows == 0


def test_shard_ids_are_stable_unique_and_in_input_order() -> None:
    inputs = [input_file("a", [10, 10, 3]), input_file("b", [100])]
    first, second = cut_into_shards(inputs, 8), cut_into_shards(inputs, 8)
    ids = [shard.shard_id for shard in first]
    assert first == second
    assert ids == sorted(set(ids))


def test_a_large_row_group_is_cut_into_even_parts() -> None:
    rows = [shard.rows for shard in cut_into_shards([input_file("a", [500])], 256)]
    assert rows == [250, 250]


def test_large_documents_make_shards_of_fewer_rows() -> None:
    shards = cut_into_shards([input_file("a", [8], bytes_per_row=2**20)], 256, 2 * 2**20)
    assert [shard.rows for shard in shards] == [2, 2, 2, 2]


@pytest.mark.parametrize("rows", [[10, 300], []])
def test_a_saved_plan_comes_back_whole(tmp_path: Path, rows: list[int]) -> None:
    plan = Plan(
        shards=tuple(cut_into_shards([input_file("ä/b.parquet", rows)], 64)),
        fingerprint={"seed": 1, "columns": {"text": "text"}},
        repeated_ids=None,
    )
    save_plan(LocalFolder(tmp_path), plan)
    assert load_plan(LocalFolder(tmp_path)) == plan


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really PAR1"])
def test_a_foreign_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PLAN_NAME).write_bytes(content)
    with pytest.raises(RunConflict, match="not a raydiff plan"):
        load_plan(LocalFolder(tmp_path))


def test_a_shard_survives_the_way_to_a_worker() -> None:
    spans = (Span(file="a", row_start=4, rows=3, stop_group=1), Span(file="b", row_start=0, rows=2))
    shard = Shard(shard_id="00000001-0123abcd", spans=spans)
    assert Shard.from_json(json.loads(json.dumps(shard.to_json()))) == shard


def test_documents_of_a_shard_of_several_files_have_their_places() -> None:
    spans = (Span(file="a", row_start=4, rows=2), Span(file="b", row_start=0, rows=1))
    shard = Shard(shard_id="00000001-0123abcd", spans=spans)
    assert list(shard.places()) == [("a", 4), ("a", 5), ("b", 0)]
    assert [shard.place(index) for index in range(shard.rows)] == list(shard.places())
    with pytest.raises(IndexError):
        shard.place(3)
