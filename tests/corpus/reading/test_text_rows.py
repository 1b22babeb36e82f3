"""Rows of JSON lines and CSV are those that the standard library reads, wherever a span begins."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.reading import Rejected, SpanReader
from raydiff.errors import InputError

from .conftest import CountingFolder, opened, read_all, reader_of, said, spans_of

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
objects = st.fixed_dictionaries(
    {"text": text | st.none(), "id": st.integers(-(2**63), 2**63 - 1) | st.none()},
    optional={"more": text},
)


def expected_text(value: str | None) -> str:
    if value is None:
        return "<NullDocument>"
    return value if value.strip() else "<EmptyDocument>"


@settings(deadline=None, max_examples=60)
@given(
    records=st.lists(objects, max_size=20),
    shard_rows=st.integers(1, 8),
    ending=st.sampled_from(["", ".gz"]),
    newline=st.sampled_from(["\n", "\r\n", "\n\n"]),
    order=st.randoms(use_true_random=False),
)
def test_json_lines_are_read_as_the_json_module_reads_them(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[dict[str, Any]],
    shard_rows: int,
    ending: str,
    newline: str,
    order: Any,
) -> None:
    path = tmp_path_factory.mktemp("corpus") / f"a.jsonl{ending}"
    content = newline.join(json.dumps(record, ensure_ascii=False) for record in records).encode()
    path.write_bytes(gzip.compress(content) if ending else content)
    inputs = opened(path, id_column="id" if records else None)
    spans = spans_of(inputs, shard_rows)
    shuffled = list(spans)
    order.shuffle(shuffled)
    reader = reader_of(inputs)
    found = {span: reader.read(span) for span in shuffled}
    texts = [said(text) for span in spans for text in found[span].texts]
    ids = [i for span in spans for i in found[span].carried.to_pylist()]
    assert texts == [expected_text(record["text"]) for record in records]
    if any(record["id"] is not None for record in records):
        assert ids == [{"id": record["id"]} for record in records]


rows = st.lists(st.tuples(text, text.filter(lambda t: "\0" not in t)), max_size=20)


@settings(deadline=None, max_examples=60)
@given(
    rows=rows,
    shard_rows=st.integers(1, 8),
    ending=st.sampled_from([".csv", ".tsv", ".csv.gz"]),
    end=st.sampled_from(["\n", "\r\n"]),
    order=st.randoms(use_true_random=False),
)
def test_csv_is_read_as_the_csv_module_reads_it(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    shard_rows: int,
    ending: str,
    end: str,
    order: Any,
) -> None:
    path = tmp_path_factory.mktemp("corpus") / f"a{ending}"
    delimiter = "\t" if ending == ".tsv" else ","
    sink = io.StringIO()
    writer = csv.writer(sink, csv.unix_dialect, delimiter=delimiter, lineterminator=end)
    writer.writerows([("id", "text"), *rows])
    content = sink.getvalue().encode()
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    expected = list(csv.DictReader(io.StringIO(sink.getvalue(), newline=""), delimiter=delimiter))
    inputs = opened(path)
    spans = spans_of(inputs, shard_rows)
    shuffled = list(spans)
    order.shuffle(shuffled)
    reader = reader_of(inputs)
    found = {span: reader.read(span) for span in shuffled}
    assert [said(text) for span in spans for text in found[span].texts] == [
        expected_text(row["text"]) for row in expected
    ]
    assert [i for span in spans for i in found[span].carried.to_pylist()] == [
        {"id": row["id"]} for row in expected
    ]


def test_broken_lines_are_error_rows_that_name_their_line(tmp_path: Path) -> None:
    lines = [
        b'{"id": 1, "text": "one"}',
        b"",
        b'{"id": 2, "text": ',
        b'["not", "an object"]',
        b'{"id": 3, "text": "\xff"}',
        b"[" * 100_000,
        b'{"id": 4, "text": "four"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    inputs = opened(tmp_path)
    (span,) = spans_of(inputs)
    found = reader_of(inputs).read(span)
    assert [said(t) for t in found.texts] == ["one", *["<MalformedRecord>"] * 4, "four"]
    reasons = [t.message.partition(":")[0] for t in found.texts if isinstance(t, Rejected)]
    assert reasons == ["Line 3", "Line 4", "Line 5", "Line 6"]
    assert found.carried.column("id").to_pylist() == [1, None, None, None, None, 4]


def test_rows_of_csv_with_other_numbers_of_fields_are_error_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,one\n2\n3,"a\nb"\n4,x,y\n5,"never\n6,six\n')
    inputs = opened(tmp_path)
    (span,) = spans_of(inputs)
    found = reader_of(inputs).read(span)
    assert [said(t) for t in found.texts] == [
        "one",
        "<MalformedRecord>",
        "a\nb",
        "<MalformedRecord>",
        "<MalformedRecord>",
        "six",
    ]
    messages = [t.message for t in found.texts if isinstance(t, Rejected)]
    assert messages[0] == "Line 3: it has 1 fields; the header has 2."
    assert messages[1] == "Line 6: it has 3 fields; the header has 2."
    assert messages[2].startswith("Line 7: A quoted field begins here")


def test_the_line_is_named_wherever_a_span_begins(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n" + '1,"x\ny"\n' * 50 + "broken\n")
    inputs = opened(tmp_path)
    last = reader_of(inputs).read(spans_of(inputs, 7)[-1]).texts[-1]
    assert isinstance(last, Rejected)
    assert last.message.startswith("Line 102:")


def test_a_value_that_contradicts_the_type_of_its_column_is_an_error_row(tmp_path: Path) -> None:
    records = [{"id": i, "text": "x"} for i in range(1000)] + [{"id": "a", "text": "y"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    texts, carried = read_all(opened(tmp_path))
    assert texts == ["x"] * 1000 + ["<ColumnTypeMismatch>"]
    assert carried.column("id").to_pylist() == [*range(1000), None]


def test_documents_of_json_are_strings_or_lists_of_them(tmp_path: Path) -> None:
    values: list[Any] = ["a", ["b", None, "c"], 7, {"k": 1}, [1], None, "\ud800", "", []]
    lines = [json.dumps({"body": {"text": value}}) for value in values]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + '\n{"body": 1}\n{}')
    texts, _ = read_all(opened(tmp_path, text_column="body.text"))
    assert texts == [
        "a",
        "b\n\nc",
        "<NotText>",
        "<NotText>",
        "<NotText>",
        "<NullDocument>",
        "<InvalidUtf8>",
        "<EmptyDocument>",
        "<EmptyDocument>",
        "<NullDocument>",
        "<NullDocument>",
    ]


def test_undecodable_csv_costs_the_row_only_where_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,text,other\n1,\xff,a\n\xff,two,a\n3,three,\xff\n")
    texts, carried = read_all(opened(tmp_path))
    assert texts == ["<InvalidUtf8>", "<MalformedRecord>", "three"]
    assert carried.column("id").to_pylist() == ["1", None, "3"]


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("\ufefftext,id\nx,1\n".encode())
    assert read_all(opened(tmp_path))[0] == ["x"]


def test_a_line_that_is_too_long_is_an_error_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raydiff.corpus.inputs.lines.split_lines.__defaults__", (1000, 100))
    records = [{"text": "x" * size} for size in (10, 5000, 20)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "b.csv").write_text("text\n" + "\n".join("x" * size for size in (10, 5000, 20)))
    for name in ("a.jsonl", "b.csv"):
        texts, _ = read_all(opened(tmp_path / name))
        assert texts == ["x" * 10, "<MalformedRecord>", "x" * 20]


def test_a_span_deep_in_a_plain_file_is_read_from_its_byte_on(tmp_path: Path) -> None:
    records = [{"text": f"{i} {'x' * 1000}"} for i in range(5000)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    inputs = opened(tmp_path)
    folder = CountingFolder(tmp_path)
    found = SpanReader(folder, inputs.layout).read(spans_of(inputs)[25])
    assert found.texts == [record["text"] for record in records[2500:2600]]
    assert folder.bytes_read < 2**21


def test_spans_of_a_compressed_file_in_order_read_it_once(tmp_path: Path) -> None:
    content = b"".join(b'{"text": "%d"}\n' % i for i in range(1000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(content))
    inputs = opened(tmp_path)
    folder = CountingFolder(tmp_path)
    reader = SpanReader(folder, inputs.layout)
    spans = spans_of(inputs, 10)
    for span in [*spans[:20], *spans[70:]]:  # others are committed
        assert reader.read(span).texts == [str(span.row_start + i) for i in range(10)]
    assert folder.opened == ["a.jsonl.gz"]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_file_with_fewer_rows_than_planned_is_refused(tmp_path: Path, ending: str) -> None:
    def write(rows: int) -> None:
        content = b'{"text": "x"}\n' * rows
        path = tmp_path / f"a.jsonl{ending}"
        path.write_bytes(gzip.compress(content) if ending else content)

    write(100)
    inputs = opened(tmp_path)
    spans = spans_of(inputs, 10)
    write(42)
    reader = reader_of(inputs)
    for number in (4, 9):
        with pytest.raises(InputError, match=r"a\.jsonl.* has fewer rows than when the run was"):
            reader.read(spans[number])


def test_columns_absent_from_a_json_record_are_null(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x", "n": 1}\n{"text": "y"}\n')
    _, carried = read_all(opened(tmp_path, pass_columns=("n",)))
    assert carried == pa.table({"n": pa.array([1, None], pa.int64())})
