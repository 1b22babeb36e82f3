"""Input that cannot be used is refused by name before any work starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.corpus.inputs import Inputs, read_inputs
from raydiff.errors import InputError

from .conftest import WriteCorpus


def read(path: Path | str, **options: Any) -> Inputs:
    defaults: dict[str, Any] = {"text": "text", "id_column": None, "passed": ()}
    return read_inputs(str(path), **{**defaults, **options})


def test_no_such_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such path"):
        read(tmp_path / "absent")


def test_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file named \*\.parquet"):
        read(tmp_path)


def test_a_store_that_is_not_supported_is_named() -> None:
    with pytest.raises(InputError, match="s3://bucket"):
        read("s3://bucket/corpus")


@pytest.mark.parametrize("content", [b"", b"x", b"a text file of more than twelve bytes"])
def test_a_file_that_is_not_parquet(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"notes\.parquet is not a"):
        read(path)


@pytest.mark.parametrize("keep", [5, 40, 200])
def test_a_truncated_file_among_good_ones_is_named(
    tmp_path: Path, write_corpus: WriteCorpus, keep: int
) -> None:
    for name in "abc":
        write_corpus(tmp_path / f"{name}.parquet", ["one", "two"])
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[:keep])
    with pytest.raises(InputError, match=r"b\.parquet"):
        read(tmp_path)


def test_a_footer_of_nonsense_is_refused(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["one"])
    content = bytearray(path.read_bytes())
    content[-60:-8] = bytes(52)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as Parquet"):
        read(path)


def test_a_missing_text_column_lists_the_columns(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["one"])
    with pytest.raises(InputError, match="no column 'body'; its columns are doc_id, text"):
        read(path, text="body")


def test_a_text_column_missing_in_one_file_names_that_file(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    write_corpus(tmp_path / "a.parquet", ["one"])
    pq.write_table(pa.table({"doc_id": ["x"], "other": ["y"]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet has no column 'text'"):
        read(tmp_path)


def test_a_text_column_of_numbers_is_refused(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    path = write_corpus(tmp_path / "a.parquet", [1, 2])
    with pytest.raises(InputError, match="text: int64"):
        read(path)


def test_ids_come_from_doc_id_then_id_then_nowhere(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    found = {
        name: read(write_corpus(tmp_path / f"{name}.parquet", ["x"], id_name=name)).columns.id
        for name in ("doc_id", "id", "key")
    }
    assert found == {"doc_id": "doc_id", "id": "id", "key": None}


def test_a_carried_column_must_have_one_type(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    write_corpus(tmp_path / "a.parquet", ["one"], ids=["x"])
    write_corpus(tmp_path / "b.parquet", ["one"], ids=[7])
    with pytest.raises(InputError, match=r"'doc_id' is string in .*a\.parquet but int64 in"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["summary", "source_row", "error_type"])
def test_a_passed_column_may_not_hide_an_output_column(
    tmp_path: Path, write_corpus: WriteCorpus, name: str
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["one"], **{name: ["x"]})
    with pytest.raises(InputError, match=f"pass_columns.*{name}"):
        read(path, passed=[name])


def test_a_column_is_passed_once(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["one"])
    with pytest.raises(InputError, match="pass_columns"):
        read(path, passed=["doc_id"])


def test_files_are_found_at_any_depth_but_not_hidden_ones(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    for name in ("b.parquet", "a/c.parquet", ".tmp-x.parquet", "_old/d.parquet"):
        write_corpus(tmp_path / name, ["one"])
    (tmp_path / "readme.txt").write_text("not data")
    assert [file.name for file in read(tmp_path).files] == ["a/c.parquet", "b.parquet"]


def test_a_single_file_may_have_any_name(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    inputs = read(write_corpus(tmp_path / "corpus.pq", ["one", "two"]))
    assert (inputs.folder.uri, inputs.rows) == (str(tmp_path), 2)
