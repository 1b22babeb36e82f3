"""Rows of Parquet come back exactly, however files are laid out, and cost only what they need."""

from __future__ import annotations

import decimal
import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.reading import Rejected, SpanReader
from raydiff.errors import InputError

from ..conftest import WriteCorpus
from ..spoiling import spoil_pages
from .conftest import CountingFolder, opened, read_all, reader_of, said, spans_of


@settings(deadline=None, max_examples=30)
@given(
    rows=st.integers(1, 60),
    group=st.integers(1, 60),
    shard_rows=st.integers(1, 30),
    order=st.randoms(use_true_random=False),
)
def test_spans_read_in_any_order_give_the_file(
    tmp_path_factory: pytest.TempPathFactory, rows: int, group: int, shard_rows: int, order: Any
) -> None:
    path = tmp_path_factory.mktemp("corpus") / "a.parquet"
    table = pa.table({"doc_id": list(range(rows)), "text": [f"t{i}" for i in range(rows)]})
    pq.write_table(table, path, row_group_size=group)
    inputs = opened(path)
    spans = spans_of(inputs, shard_rows)
    shuffled = list(spans)
    order.shuffle(shuffled)
    reader = reader_of(inputs)
    found = {span: reader.read(span) for span in shuffled}
    assert [t for span in spans for t in found[span].texts] == [f"t{i}" for i in range(rows)]
    ids = [i for span in spans for i in found[span].carried.column("doc_id").to_pylist()]
    assert ids == list(range(rows))


def test_spans_in_order_decode_a_row_group_once(
    tmp_path: Path, write_corpus: WriteCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_corpus(tmp_path / "a.parquet", [f"t{i}" for i in range(100)])
    inputs = opened(path)
    files = []
    original = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda *a, **k: files.append(1) or original(*a, **k))
    reader = reader_of(inputs)
    for span in spans_of(inputs, 10):
        reader.read(span)
    assert len(files) == 1


def test_only_the_bytes_of_needed_columns_are_read(tmp_path: Path) -> None:
    rows = 2000
    ballast = [os.urandom(500) for _ in range(rows)]
    table = pa.table({"id": range(rows), "a": ballast, "text": ["x" * 20] * rows, "z": ballast})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=500)
    size = (tmp_path / "a.parquet").stat().st_size
    inputs = opened(tmp_path)
    folder = CountingFolder(tmp_path)
    reader = SpanReader(folder, inputs.layout)
    for span in spans_of(inputs):
        reader.read(span)
    assert folder.opened == ["a.parquet"]
    assert folder.bytes_read < size / 20


def test_a_span_reads_its_own_row_groups_only(tmp_path: Path) -> None:
    texts = [os.urandom(400).hex() for _ in range(4000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=100)
    size = (tmp_path / "a.parquet").stat().st_size
    inputs = opened(tmp_path)
    folder = CountingFolder(tmp_path)
    found = SpanReader(folder, inputs.layout).read(spans_of(inputs)[20])
    assert found.texts == texts[2000:2100]
    assert folder.bytes_read < size / 10


def test_large_column_chunks_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydiff.corpus.reading.parquet._AT_ONCE_BYTES", 1000)
    monkeypatch.setattr("raydiff.corpus.reading.parquet._BUFFER_BYTES", 4096)
    monkeypatch.setattr("raydiff.corpus.reading.parquet._BATCH_BYTES", 50_000)
    texts = [uuid.uuid4().hex * 10 for _ in range(2000)]
    pq.write_table(
        pa.table({"text": texts}),
        tmp_path / "a.parquet",
        data_page_size=4096,
        write_batch_size=10,
        compression="none",
        use_dictionary=False,
    )
    size = (tmp_path / "a.parquet").stat().st_size
    inputs = opened(tmp_path)
    folder = CountingFolder(tmp_path)
    reader = SpanReader(folder, inputs.layout)
    spans = spans_of(inputs)
    assert reader.read(spans[0]).texts == texts[: spans[0].rows]
    assert folder.bytes_read < size / 2
    assert [t for span in spans[1:] for t in reader.read(span).texts] == texts[spans[0].rows :]


def test_batches_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydiff.corpus.reading.parquet._BATCH_BYTES", 10_000)
    texts = [uuid.uuid4().hex * 100 for _ in range(50)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    taken = []
    original = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, rows, **options: taken.append(rows) or original(self, rows, **options),
    )
    assert read_all(opened(tmp_path))[0] == texts
    assert taken in ([2], [3])


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
def test_every_kind_of_text_column_reads_alike(tmp_path: Path, kind: Any) -> None:
    values = pa.array([b"abcde", b"fghij", None], pa.binary())
    kind_values = values.cast(pa.string()).cast(kind) if kind != pa.binary(5) else values.cast(kind)
    pq.write_table(pa.table({"text": kind_values}), tmp_path / "a.parquet")
    assert read_all(opened(tmp_path))[0] == ["abcde", "fghij", "<NullDocument>"]


def test_a_nested_text_column_is_read_without_its_neighbours(tmp_path: Path) -> None:
    ballast = uuid.uuid4().hex * 1000
    body = [{"text": f"t{i}", "html": f"{i}{ballast}"} for i in range(50)]
    pq.write_table(
        pa.table({"body": [*body, None, {"text": None, "html": "x"}]}),
        tmp_path / "a.parquet",
        compression="none",
    )
    inputs = opened(tmp_path, text_column="body.text")
    folder = CountingFolder(tmp_path)
    (span,) = spans_of(inputs)
    texts = SpanReader(folder, inputs.layout).read(span).texts
    assert [said(text) for text in texts] == [f"t{i}" for i in range(50)] + ["<NullDocument>"] * 2
    assert folder.bytes_read < (tmp_path / "a.parquet").stat().st_size / 10


def test_paragraphs_of_a_nested_list_are_one_document(tmp_path: Path) -> None:
    body = [{"parts": ["a", "b"]}, {"parts": []}, None]
    pq.write_table(pa.table({"body": body}), tmp_path / "a.parquet")
    texts, _ = read_all(opened(tmp_path, text_column="body.parts"))
    assert texts == ["a\n\nb", "<EmptyDocument>", "<NullDocument>"]


WHEN = datetime(2024, 5, 6, tzinfo=UTC)
STRUCT = pa.struct([("lang", pa.string()), ("tags", pa.list_(pa.string()))])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [7, None, 9]),
        (pa.uint8(), [7, None, 9]),
        (pa.string(), ["a", None, "c"]),
        (pa.large_string(), ["a", None, "c"]),
        (pa.string_view(), ["a", None, "c"]),
        (pa.binary(), [b"\xff", None, b""]),
        (pa.binary(2), [b"\xff\x00", None, b"ab"]),
        (pa.uuid(), [uuid.UUID(int=1).bytes, None, uuid.UUID(int=2).bytes]),
        (pa.decimal128(10, 2), [decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")]),
        (pa.timestamp("us", "UTC"), [WHEN, None, WHEN]),
        (pa.date32(), [WHEN.date(), None, WHEN.date()]),
        (pa.bool_(), [True, None, False]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", None, "a"]),
        (STRUCT, [{"lang": "en", "tags": ["x", None]}, None, {"lang": None, "tags": []}]),
        (pa.list_(STRUCT), [[{"lang": "en", "tags": None}], None, []]),
        (pa.map_(pa.string(), pa.int64()), [[("k", 1)], None, []]),
    ],
    ids=str,
)
def test_ids_and_passed_columns_keep_type_and_value(
    tmp_path: Path, kind: Any, values: list[Any]
) -> None:
    column = pa.array(values, kind)
    table = pa.table({"doc_id": column, "text": ["x", "y", "z"], "extra": column})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    _, carried = read_all(opened(tmp_path, pass_columns=("extra",)), shard_rows=2)
    assert carried.schema == pa.schema([("doc_id", kind), ("extra", kind)])
    assert carried.column("extra").to_pylist() == column.to_pylist()
    assert carried.column("doc_id").to_pylist() == column.to_pylist()


def test_a_column_that_is_a_dictionary_in_some_files_is_as_in_the_first(tmp_path: Path) -> None:
    plain = pa.array(["a", "b", None])
    for name, column in {"a": plain, "b": plain.dictionary_encode(), "c": pa.nulls(3)}.items():
        pq.write_table(pa.table({"text": column, "doc_id": column}), tmp_path / f"{name}.parquet")
    texts, carried = read_all(opened(tmp_path))
    assert texts == ["a", "b", "<NullDocument>"] * 2 + ["<NullDocument>"] * 3
    assert carried.column("doc_id").to_pylist() == ["a", "b", None, "a", "b", None] + [None] * 3
    assert carried.column("doc_id").type == pa.string()


def test_values_of_directories_are_columns(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    write_corpus(tmp_path / "y=1" / "a.parquet", ["one", "two"])
    write_corpus(tmp_path / "y=__HIVE_DEFAULT_PARTITION__" / "a.parquet", ["three"])
    inputs = opened(tmp_path, pass_columns=("y",))
    _, carried = read_all(inputs)
    assert carried.column("y").to_pylist() == [1, 1, None]
    assert carried.schema == inputs.layout.carried


def test_a_placeholder_has_nulls_for_what_is_in_the_file_only(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    path = write_corpus(tmp_path / "y=1" / "a.parquet", ["one", "two"])
    inputs = opened(tmp_path, pass_columns=("y",))
    (span,) = spans_of(inputs)
    path.unlink()
    table = reader_of(inputs).placeholder(span)
    assert table.to_pylist() == [{"doc_id": None, "y": 1}] * 2
    assert table.schema == inputs.layout.carried


def test_a_file_with_other_rows_than_planned_is_refused(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["x"] * 10)
    inputs = opened(path)
    spans = spans_of(inputs, 5)
    write_corpus(path, ["x"] * 7)
    with pytest.raises(InputError, match=r"a\.parquet has other rows than when the run was plan"):
        reader_of(inputs).read(spans[1])


def test_a_file_that_is_gone_is_refused(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["x"])
    inputs = opened(path)
    (span,) = spans_of(inputs)
    path.unlink()
    with pytest.raises(InputError, match=r"a\.parquet cannot be read any more"):
        reader_of(inputs).read(span)


def test_a_corrupt_row_group_costs_its_rows_only(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["some text"] * 20, row_group_size=8)
    inputs = opened(path)
    spoil_pages(path)
    texts, carried = read_all(inputs)
    assert texts == ["<CorruptRows>"] * 8 + ["some text"] * 12
    assert carried.column("doc_id").to_pylist() == [None] * 8 + [f"a-{i}" for i in range(8, 20)]


def spoil_a_later_page(path: Path, marker: bytes) -> None:
    """Overwrite what follows a text in the file."""
    content = bytearray(path.read_bytes())
    at = content.index(marker)
    content[at : at + 200] = b"\xff" * 200
    path.write_bytes(content)


def test_rows_before_a_corrupt_page_are_read(tmp_path: Path) -> None:
    texts = [f"document {i} {uuid.uuid4().hex * 4}" for i in range(400)]
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"text": texts}),
        path,
        data_page_size=1024,
        write_batch_size=1,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    inputs = opened(path)
    spoil_a_later_page(path, texts[200].encode())
    found, _ = read_all(inputs, 50)
    lost = [index for index, text in enumerate(found) if text == "<CorruptRows>"]
    assert found[: lost[0]] == texts[: lost[0]]
    assert 180 < lost[0] <= 200
    assert lost == list(range(lost[0], 400))


def test_a_corrupt_row_group_is_decoded_a_few_times_only(
    tmp_path: Path, write_corpus: WriteCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["some text"] * 1000)
    inputs = opened(path)
    spoil_pages(path)
    begun = []
    original = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, rows, **options: begun.append(rows) or original(self, rows, **options),
    )
    found, _ = read_all(inputs, 10)
    assert found == ["<CorruptRows>"] * 1000
    assert len(begun) <= 5


def test_the_reason_names_the_file(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["some text"] * 20)
    inputs = opened(path)
    spoil_pages(path)
    (span,) = spans_of(inputs)
    (first, *_) = reader_of(inputs).read(span).texts
    assert isinstance(first, Rejected)
    assert str(path) in first.message
