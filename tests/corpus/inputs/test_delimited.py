"""CSV is read as the standard library reads it; what it would swallow silently is an error."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.inputs import delimited
from raydiff.corpus.inputs.formats import FileKind
from raydiff.corpus.inputs.record import Record
from raydiff.corpus.inputs.records import read_records

KIND = FileKind("csv")


def records(content: bytes, kind: FileKind = KIND, offset: int = 0) -> list[Record]:
    stream = pa.BufferReader(content)
    stream.seek(offset)
    return list(read_records(stream, kind, "a.csv", offset=offset))


fields = st.text(st.sampled_from('ab é",\n\r;\t'), max_size=6)
rows = st.lists(st.lists(fields, min_size=1, max_size=4), max_size=6)


@settings(deadline=None)
@given(rows, st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from([",", "\t"]), st.booleans())
def test_what_a_writer_wrote_comes_back(
    rows: list[list[str]], end: str, delimiter: str, mark: bool
) -> None:
    sink = io.StringIO()
    # it leaves a lone carriage return unquoted otherwise
    csv.writer(sink, csv.unix_dialect, delimiter=delimiter, lineterminator=end).writerows(rows)
    content = (b"\xef\xbb\xbf" if mark else b"") + sink.getvalue().encode()
    found = records(content, FileKind("csv", None, delimiter))
    assert [(r.content, r.problem) for r in found] == [(row, None) for row in rows]


@settings(deadline=None)
@given(st.text(st.sampled_from('ab",\n\r '), max_size=30))
def test_any_text_gives_the_rows_of_the_standard_parser(text: str) -> None:
    found = records(text.encode())
    if any(record.problem for record in found):
        return
    expected = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    assert [record.content for record in found] == expected


@settings(deadline=None)
@given(st.text(st.sampled_from('ab",\n\r '), max_size=30))
def test_reading_may_begin_at_any_record(text: str) -> None:
    content = text.encode()
    found = records(content)
    for index, record in enumerate(found):
        later = records(content, offset=record.offset)
        assert [(r.content, r.problem, r.offset) for r in later] == [
            (r.content, r.problem, r.offset) for r in found[index:]
        ]


def test_records_and_blank_lines_cover_the_file() -> None:
    content = b'a,b\r\n\r\n"x\ny",2\n\n3,4'
    found = records(content)
    assert [content[r.offset :][: r.size] for r in found] == [b"a,b\r\n", b'"x\ny",2\n', b"3,4"]
    assert [record.line for record in found] == [1, 3, 6]


def test_a_quote_that_is_never_closed_costs_its_line_only() -> None:
    found = records(b'a,b\n1,"x\n2,y\n3,z\n')
    assert [record.content for record in found if not record.problem] == [
        ["a", "b"],
        ["2", "y"],
        ["3", "z"],
    ]
    (bad,) = (record for record in found if record.problem)
    assert bad.line == 2
    assert "never closed" in str(bad.problem)


def test_a_quote_that_is_closed_too_late_costs_its_line_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delimited, "MAX_RECORD_BYTES", 20)
    found = records(b'1,"x\n' + b"2,y\n" * 10 + b'3,"z"\n')
    assert [bool(record.problem) for record in found] == [True] + [False] * 11


def test_undecodable_bytes_come_as_escapes() -> None:
    (record,) = records(b"a,\xff\n")
    assert record.content[1].encode("utf-8", "surrogateescape") == b"\xff"
