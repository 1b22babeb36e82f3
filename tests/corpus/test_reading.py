"""A shard's rows come back exactly, however files are laid out; bad rows stay alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.cutting import cut_into_shards
from raydiff.corpus.inputs import Columns, read_inputs
from raydiff.corpus.plan import Shard
from raydiff.corpus.reading import CorruptRows, Rejected, SpanReader, decode_texts
from raydiff.corpus.storage import LocalFolder
from raydiff.errors import InputError

from .conftest import WriteCorpus

COLUMNS = Columns(text="text", id="doc_id")


def plan(path: Path, shard_rows: int) -> list[Shard]:
    inputs = read_inputs(str(path), text="text", id_column=None, passed=())
    return cut_into_shards(inputs.files, shard_rows)


def texts(table: pa.Table) -> list[str]:
    return [str(text) for text in table.column("text").to_pylist()]


@settings(deadline=None, max_examples=30)
@given(
    rows=st.integers(1, 60),
    group=st.integers(1, 60),
    shard_rows=st.integers(1, 30),
    order=st.randoms(use_true_random=False),
)
def test_shards_read_in_any_order_give_the_file(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    group: int,
    shard_rows: int,
    order: object,
) -> None:
    path = tmp_path_factory.mktemp("corpus") / "a.parquet"
    table = pa.table({"doc_id": list(range(rows)), "text": [f"t{i}" for i in range(rows)]})
    pq.write_table(table, path, row_group_size=group)
    shards = plan(path, shard_rows)
    shuffled = list(shards)
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis's Random has no type
    reader = SpanReader(LocalFolder(path.parent), COLUMNS)
    by_id = {shard.shard_id: texts(reader.read(shard.spans[0])) for shard in shuffled}
    assert [t for s in shards for t in by_id[s.shard_id]] == [f"t{i}" for i in range(rows)]


def test_shards_in_order_decode_a_row_group_once(
    tmp_path: Path, write_corpus: WriteCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_corpus(tmp_path / "a.parquet", [f"t{i}" for i in range(100)])
    opened = []
    original = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda *a, **k: opened.append(1) or original(*a, **k))
    reader = SpanReader(LocalFolder(tmp_path), COLUMNS)
    for shard in plan(path, 10):
        reader.read(shard.spans[0])
    assert len(opened) == 1


def test_only_the_needed_columns_are_read(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["x"], ballast=["y"])
    (shard,) = plan(path, 10)
    assert SpanReader(LocalFolder(tmp_path), COLUMNS).read(shard.spans[0]).column_names == [
        "text",
        "doc_id",
    ]


def test_a_file_with_fewer_rows_than_planned_is_refused(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["x"] * 10)
    shards = plan(path, 5)
    write_corpus(path, ["x"] * 7)
    with pytest.raises(InputError, match="fewer rows than when the run was planned"):
        SpanReader(LocalFolder(tmp_path), COLUMNS).read(shards[1].spans[0])


def test_a_file_that_is_gone_is_refused(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["x"])
    (shard,) = plan(path, 5)
    path.unlink()
    with pytest.raises(InputError, match=r"a\.parquet cannot be read any more"):
        SpanReader(LocalFolder(tmp_path), COLUMNS).read(shard.spans[0])


def spoil_pages(path: Path) -> None:
    """Overwrite the text column's first pages, leaving the footer whole."""
    metadata = pq.read_metadata(path)
    index = metadata.schema.names.index("text")
    chunk = metadata.row_group(0).column(index)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)


def test_pages_that_cannot_be_decoded_are_told_apart(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["some text"] * 20)
    (shard,) = plan(path, 50)
    spoil_pages(path)
    with pytest.raises(CorruptRows, match=r"a\.parquet"):
        SpanReader(LocalFolder(tmp_path), COLUMNS).read(shard.spans[0])


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(5),
        pa.dictionary(pa.int32(), pa.string()),
    ],
)
def test_every_kind_of_text_column_reads_alike(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "a.parquet"
    values = pa.array([b"abcde", b"fghij", None], pa.binary())
    kind_values = values.cast(pa.string()).cast(kind) if kind != pa.binary(5) else values.cast(kind)
    pq.write_table(pa.table({"text": kind_values}), path)
    (shard,) = plan(path, 50)
    table = SpanReader(LocalFolder(tmp_path), Columns(text="text", id=None)).read(shard.spans[0])
    *good, null = decode_texts(table.column("text"))
    assert good == ["abcde", "fghij"]
    assert isinstance(null, Rejected)


def test_null_empty_and_undecodable_rows_are_rejected_alone() -> None:
    column = pa.chunked_array(
        [pa.array([b"good", None, b"", b" \n\t", b"bad \xff byte", "ünï".encode()], pa.binary())]
    )
    kinds = [t if isinstance(t, str) else t.error_type for t in decode_texts(column)]
    assert kinds == ["good", "NullDocument", "EmptyDocument", "EmptyDocument", "InvalidUtf8", "ünï"]


def test_a_string_column_with_invalid_bytes_is_read_too() -> None:
    bytes_column = pa.array([b"ok", b"\xc3\x28"], pa.binary())
    unchecked = pa.Array.from_buffers(pa.string(), 2, bytes_column.buffers())
    good, bad = decode_texts(pa.chunked_array([unchecked]))
    assert good == "ok"
    assert isinstance(bad, Rejected)
    assert "byte 0" in bad.message


def test_a_column_of_nulls_rejects_every_row() -> None:
    rejected = decode_texts(pa.chunked_array([pa.nulls(2)]))
    assert [r.error_type for r in rejected if isinstance(r, Rejected)] == ["NullDocument"] * 2
