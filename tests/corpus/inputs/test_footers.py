"""A Parquet file that cannot be used is refused by name before any work starts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.corpus.inputs import file_digest
from raydiff.errors import InputError

from ..conftest import WriteCorpus
from .conftest import OpenInputs, facts_of


@pytest.mark.parametrize("content", [b"", b"x", b"a text file of more than twelve bytes"])
def test_a_file_that_is_not_parquet(tmp_path: Path, opened: OpenInputs, content: bytes) -> None:
    path = tmp_path / "notes.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"notes\.parquet is not a"):
        opened(path)


@pytest.mark.parametrize("keep", [5, 40, 200])
def test_a_truncated_file_among_good_ones_is_named(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs, keep: int
) -> None:
    for name in "abc":
        write_corpus(tmp_path / f"{name}.parquet", ["one", "two"])
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[:keep])
    with pytest.raises(InputError, match=r"b\.parquet"):
        facts_of(opened(tmp_path))


def test_a_footer_of_nonsense_is_refused(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["one"])
    content = bytearray(path.read_bytes())
    content[-60:-8] = bytes(52)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as Parquet"):
        opened(path)


def test_a_footer_larger_than_one_read_is_read_whole(tmp_path: Path, opened: OpenInputs) -> None:
    table = pa.table({"text": ["x"], **{f"column_{i:04}" + "n" * 60: [i] for i in range(400)}})
    pq.write_table(table, tmp_path / "a.parquet")
    assert pq.read_metadata(tmp_path / "a.parquet").serialized_size > 64 * 1024
    assert [facts.rows for facts in facts_of(opened(tmp_path))] == [1]


def test_a_missing_text_column_lists_the_columns(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["one"])
    with pytest.raises(InputError, match="no column 'body'; its columns are doc_id, text"):
        opened(path, text_column="body")


def test_a_text_column_missing_in_one_file_names_that_file(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    write_corpus(tmp_path / "a.parquet", ["one"])
    pq.write_table(pa.table({"doc_id": ["x"], "other": ["y"]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet has no column 'text'"):
        facts_of(opened(tmp_path))


@pytest.mark.parametrize("values", [[1, 2], [[1], [2]], [{"a": "x"}]])
def test_a_text_column_of_no_text_is_refused(
    tmp_path: Path, opened: OpenInputs, values: list[object]
) -> None:
    pq.write_table(pa.table({"text": values}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="text_column: expected a column of strings"):
        opened(tmp_path)


def test_a_carried_column_must_have_one_type(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    write_corpus(tmp_path / "a.parquet", ["one"], ids=["x"])
    write_corpus(tmp_path / "b.parquet", ["one"], ids=[7])
    with pytest.raises(InputError, match=r"'doc_id' is string in the first .* int64 in .*b\.par"):
        facts_of(opened(tmp_path))


def test_a_carried_column_missing_in_one_file_names_that_file(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    write_corpus(tmp_path / "a.parquet", ["one"], lang=["en"])
    write_corpus(tmp_path / "b.parquet", ["one"])
    with pytest.raises(InputError, match=r"pass_columns: .*b\.parquet has no column 'lang'"):
        facts_of(opened(tmp_path, pass_columns=("lang",)))


def test_a_file_without_rows_needs_no_columns(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    pq.write_table(pa.table({"other": pa.nulls(0)}), tmp_path / "a.parquet")
    write_corpus(tmp_path / "b.parquet", ["one"])
    assert [(f.name, f.rows) for f in facts_of(opened(tmp_path))] == [
        ("a.parquet", 0),
        ("b.parquet", 1),
    ]


def test_a_column_that_is_null_in_the_first_file_has_the_type_of_the_second(
    tmp_path: Path, opened: OpenInputs
) -> None:
    pq.write_table(pa.table({"text": ["x"], "n": pa.nulls(1)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["x"], "n": [7]}), tmp_path / "b.parquet")
    inputs = opened(tmp_path, pass_columns=("n",))
    assert inputs.layout.carried.field("n").type == pa.int64()
    assert len(facts_of(inputs)) == 2


def test_a_touched_file_has_its_digest_and_a_rewritten_one_another(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["one"])
    inputs = opened(path)
    (facts,) = facts_of(inputs)
    path.touch()
    assert file_digest(inputs, "a.parquet") == facts.digest
    write_corpus(path, ["two"])
    assert file_digest(inputs, "a.parquet") != facts.digest
