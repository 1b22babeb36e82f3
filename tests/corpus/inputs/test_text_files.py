"""JSON lines and CSV: planning counts the rows and settles columns, and refuses what is neither."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raydiff.corpus.inputs import file_digest
from raydiff.errors import InputError

from .conftest import OpenInputs, facts_of


def write_lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_types_of_json_come_from_the_first_records(tmp_path: Path, opened: OpenInputs) -> None:
    write_lines(tmp_path / "a.jsonl", [])
    write_lines(tmp_path / "b.jsonl", [{"id": 1, "text": "x"}, {"id": None, "score": 1, "k": [1]}])
    write_lines(tmp_path / "c.jsonl", [{"id": 2, "text": "y", "score": 1.5}])
    layout = opened(tmp_path, pass_columns=("score", "k")).layout
    assert [field.type for field in layout.carried] == [
        pa.int64(),
        pa.float64(),
        pa.list_(pa.int64()),
    ]


def test_nested_json_is_named_by_dotted_path(tmp_path: Path, opened: OpenInputs) -> None:
    write_lines(tmp_path / "a.jsonl", [{"body": {"text": "x", "id": 7}}])
    layout = opened(tmp_path, text_column="body.text", id_column="body.id").layout
    assert layout.carried.field("body.id").type == pa.int64()


def test_values_of_csv_are_strings(tmp_path: Path, opened: OpenInputs) -> None:
    (tmp_path / "a.csv").write_text("id,text\n007,x\n")
    assert opened(tmp_path).layout.carried.field("id").type == pa.string()


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_missing_text_column_lists_the_columns(
    tmp_path: Path, opened: OpenInputs, name: str
) -> None:
    (tmp_path / name).write_text(
        '{"id": 1, "boby": 2}\n' if name == "a.jsonl" else "id,boby\n1,2\n"
    )
    inputs = opened(tmp_path)
    with pytest.raises(InputError, match=rf"text_column: .*{name} has no column 'text'.*id, boby"):
        facts_of(inputs)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_missing_passed_column_is_refused_at_once(
    tmp_path: Path, opened: OpenInputs, name: str
) -> None:
    (tmp_path / name).write_text('{"text": "x"}\n' if name == "a.jsonl" else "text\nx\n")
    with pytest.raises(InputError, match=rf"pass_columns: .*{name} has no column 'lang'"):
        opened(tmp_path, pass_columns=("lang",))


def test_a_csv_file_with_other_columns_is_named(tmp_path: Path, opened: OpenInputs) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,x\n")
    (tmp_path / "b.csv").write_text("text,key\nx,1\n")
    with pytest.raises(InputError, match=r"id_column: .*b\.csv has no column 'id'"):
        facts_of(opened(tmp_path))


def test_csv_columns_may_stand_in_another_order(tmp_path: Path, opened: OpenInputs) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,x\n")
    (tmp_path / "b.tsv").write_text("text\tid\tmore\nx\t1\t2\n")
    assert [facts.rows for facts in facts_of(opened(tmp_path))] == [1, 1]


def test_a_repeated_csv_column_is_refused(tmp_path: Path, opened: OpenInputs) -> None:
    (tmp_path / "a.csv").write_text("text,text\nx,y\n")
    with pytest.raises(InputError, match="more than one column 'text'"):
        facts_of(opened(tmp_path))


def test_files_of_zero_rows_are_fine(tmp_path: Path, opened: OpenInputs) -> None:
    for name, content in {"a": "", "b": "text,id\n", "c": "\n\n"}.items():
        (tmp_path / f"{name}.csv").write_text(content)
    assert [facts.rows for facts in facts_of(opened(tmp_path))] == [0, 0, 0]
    write_lines(tmp_path / "only.jsonl", [])
    assert [facts.rows for facts in facts_of(opened(tmp_path / "only.jsonl"))] == [0]


@pytest.mark.parametrize(
    "content",
    ['[{"text": "x"}]', '[\n {"text": "x"}\n]', '{\n "text": "x"\n}\n'],
)
def test_one_json_document_is_not_taken_for_lines(
    tmp_path: Path, opened: OpenInputs, content: str
) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError, match=r"one JSON object a line.*jq -c"):
        facts_of(opened(tmp_path))


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".zst", ".lz4"])
def test_compressed_files_are_counted_like_plain_ones(
    tmp_path: Path, opened: OpenInputs, ending: str
) -> None:
    content = b'{"text": "x"}\n' * 250
    codec = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}[ending]
    with pa.CompressedOutputStream(str(tmp_path / f"a.jsonl{ending}"), codec) as sink:
        sink.write(content)
    (tmp_path / "b.jsonl").write_bytes(content)
    assert [facts.rows for facts in facts_of(opened(tmp_path))] == [250, 250]


def test_a_file_of_several_gzip_members_is_read_to_its_end(
    tmp_path: Path, opened: OpenInputs
) -> None:
    member = gzip.compress(b'{"text": "x"}\n')
    (tmp_path / "a.jsonl.gz").write_bytes(member * 3)
    assert [facts.rows for facts in facts_of(opened(tmp_path))] == [3]


@pytest.mark.parametrize("broken", ["cut", "plain"])
def test_broken_compression_is_refused_by_name(
    tmp_path: Path, opened: OpenInputs, broken: str
) -> None:
    whole = gzip.compress(json.dumps({"text": "x" * 5000}).encode() + b"\n")
    content = whole[:-20] if broken == "cut" else b'{"text": "x"}\n' * 9
    (tmp_path / "a.jsonl.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.jsonl\.gz cannot be read"):
        facts_of(opened(tmp_path / "a.jsonl.gz"))


def test_a_file_compressed_otherwise_than_its_name_says_is_refused(
    tmp_path: Path, opened: OpenInputs
) -> None:
    (tmp_path / "a.csv.gz").write_bytes(bz2.compress(b"text\nx\n"))
    with pytest.raises(InputError, match=r"a\.csv\.gz"):
        facts_of(opened(tmp_path))


def test_a_large_file_is_counted_while_its_shards_are_cut(
    tmp_path: Path, opened: OpenInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raydiff.corpus.inputs.opening._LARGE_TEXT_BYTES", 10)
    write_lines(tmp_path / "a.jsonl", [{"text": "x"}] * 250)
    write_lines(tmp_path / "b.jsonl", [{"text": "x"}] * 7)
    assert [facts.rows for facts in facts_of(opened(tmp_path))] == [250, 7]


def test_the_digest_follows_size_and_edges(tmp_path: Path, opened: OpenInputs) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"text": "x"}])
    inputs = opened(tmp_path)
    before = file_digest(inputs, "a.jsonl")
    path.touch()
    assert file_digest(inputs, "a.jsonl") == before
    write_lines(path, [{"text": "y"}])
    assert file_digest(inputs, "a.jsonl") != before
