"""Cutting puts every row in exactly one shard, within the limits of a shard."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.config import CorpusSettings
from raydiff.corpus.cutting import MAX_SHARD_FILES, Limits, cut_files, plan_items
from raydiff.corpus.inputs import InputFile, RowGroup, open_inputs
from raydiff.corpus.plan import FileFacts, Shard


def input_file(name: str, rows: list[int], bytes_per_row: int = 10) -> InputFile:
    groups = (RowGroup(rows=n, text_bytes=n * bytes_per_row) for n in rows)
    return InputFile(name=name, size_bytes=1, version="1", digest="x", groups=groups)


def cut(described: list[InputFile], shard_rows: int, **limits: Any) -> list[Shard]:
    items = cut_files(described, Limits(rows=shard_rows, **limits))
    return [item for item in items if isinstance(item, Shard)]


group_rows = st.lists(st.integers(0, 40), max_size=12)
corpora = st.lists(group_rows, max_size=8)


@settings(deadline=None)
@given(corpora, st.integers(1, 30), st.integers(1, 500), st.integers(1, 4))
def test_every_row_is_in_exactly_one_shard(
    corpus: list[list[int]], shard_rows: int, max_bytes: int, max_files: int
) -> None:
    files = [input_file(f"f{i}", rows) for i, rows in enumerate(corpus)]
    shards = cut(files, shard_rows, text_bytes=max_bytes, files=max_files)
    covered = [place for shard in shards for place in shard.places()]
    assert covered == [(f"f{i}", row) for i, rows in enumerate(corpus) for row in range(sum(rows))]


@settings(deadline=None)
@given(corpora, st.integers(1, 30), st.integers(10, 500), st.integers(1, 4))
def test_no_shard_exceeds_its_rows_bytes_or_files(
    corpus: list[list[int]], shard_rows: int, max_bytes: int, max_files: int
) -> None:
    files = [input_file(f"f{i}", rows) for i, rows in enumerate(corpus)]
    for shard in cut(files, shard_rows, text_bytes=max_bytes, files=max_files):
        assert 0 < shard.rows <= shard_rows
        # a row is never cut, so one row above an even share may come on top
        assert shard.rows * 10 <= max_bytes + 10
        assert len(shard.spans) <= max_files


@settings(deadline=None)
@given(corpora, st.integers(1, 30), st.integers(10, 500))
def test_shards_are_joined_while_they_fit(
    corpus: list[list[int]], shard_rows: int, max_bytes: int
) -> None:
    files = [input_file(f"f{i}", rows) for i, rows in enumerate(corpus)]
    for before, after in pairwise(cut(files, shard_rows, text_bytes=max_bytes)):
        following = after.spans[0].rows
        fits = before.rows + following <= shard_rows
        assert not fits or (before.rows + following) * 10 > max_bytes


@settings(deadline=None)
@given(group_rows, st.integers(1, 30))
def test_a_span_lies_in_the_row_groups_it_names(rows: list[int], shard_rows: int) -> None:
    for shard in cut([input_file("f", rows)], shard_rows):
        for span in shard.spans:
            group_start = sum(rows[: span.first_group])
            assert group_start + span.skip_rows == span.row_start
            assert span.row_start + span.rows <= sum(rows[: span.stop_group])
            assert span.stop_group - span.first_group == 1 or span.skip_rows == 0


@settings(deadline=None)
@given(corpora, st.integers(1, 30))
def test_the_facts_of_a_file_come_before_its_last_shard(
    corpus: list[list[int]], shard_rows: int
) -> None:
    files = [input_file(f"f{i}", rows) for i, rows in enumerate(corpus)]
    items = list(cut_files(files, Limits(rows=shard_rows)))
    facts = [item for item in items if isinstance(item, FileFacts)]
    assert [(f.name, f.rows) for f in facts] == [(f"f{i}", sum(r)) for i, r in enumerate(corpus)]
    for fact in facts:
        last = max(
            (
                index
                for index, item in enumerate(items)
                if isinstance(item, Shard) and fact.name in {span.file for span in item.spans}
            ),
            default=len(items),
        )
        assert items.index(fact) < last


def test_shard_ids_are_stable_unique_and_in_input_order() -> None:
    def files() -> list[InputFile]:
        return [input_file("a", [10, 10, 3]), input_file("b", [100])]

    first, second = cut(files(), 8), cut(files(), 8)
    ids = [shard.shard_id for shard in first]
    assert first == second
    assert ids == sorted(set(ids))


def test_positions_go_on_where_a_plan_ended() -> None:
    items = cut_files([input_file("a", [10])], Limits(rows=5), first_position=7)
    assert [item.position for item in items if isinstance(item, Shard)] == [7, 8]


def test_a_large_row_group_is_cut_into_even_parts() -> None:
    assert [shard.rows for shard in cut([input_file("a", [500])], 256)] == [250, 250]


def test_large_documents_make_shards_of_fewer_rows() -> None:
    shards = cut([input_file("a", [8], bytes_per_row=2**20)], 256, text_bytes=2 * 2**20)
    assert [shard.rows for shard in shards] == [2, 2, 2, 2]


def test_thousands_of_small_files_make_few_shards() -> None:
    shards = cut([input_file(f"{i:04}", [1]) for i in range(1000)], 256)
    assert len(shards) == -(-1000 // MAX_SHARD_FILES)


def test_the_same_files_give_the_same_shards_however_they_are_listed(tmp_path: Path) -> None:
    for name in ("b", "a/x", "c"):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": ["x"] * 40}), path, row_group_size=15)
    for index in range(30):
        pq.write_table(pa.table({"text": ["x"] * (index % 3)}), tmp_path / f"s{index:02}.parquet")
    inputs = open_inputs(CorpusSettings(input=str(tmp_path), output="unused"))
    first = list(plan_items(inputs, inputs.listing, 32))
    again = list(plan_items(inputs, sorted(inputs.listing, key=lambda e: e.name), 32))
    assert first == again
    assert sum(item.rows for item in first if isinstance(item, Shard)) == 3 * 40 + 30
