"""Records are counted in blocks that a reader can begin at."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.inputs.formats import FileKind
from raydiff.corpus.inputs.record import Record
from raydiff.corpus.inputs.records import blocks_of, read_records
from raydiff.errors import InputError

JSONL = FileKind("jsonl")

lines = st.lists(
    st.one_of(
        st.just(""),
        st.just("  \t"),
        st.dictionaries(st.text(max_size=3), st.integers()).map(json.dumps),
    ),
    max_size=12,
)


def records(content: bytes, offset: int = 0) -> list[Record]:
    stream = pa.BufferReader(content)
    stream.seek(offset)
    return list(read_records(stream, JSONL, "a.jsonl", offset=offset))


@settings(deadline=None)
@given(lines, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_lines_that_are_not_blank_are_records(
    lines: list[str], end: str, mark: bool, ended: bool
) -> None:
    text = end.join(lines) + (end if ended else "")
    found = records((b"\xef\xbb\xbf" if mark else b"") + text.encode())
    assert [json.loads(record.content) for record in found] == [
        json.loads(line) for line in lines if line.strip()
    ]
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()]
    assert [record.line for record in found] == numbers


@settings(deadline=None)
@given(lines, st.integers(1, 5), st.integers(1, 60))
def test_blocks_have_every_record_once_and_say_where_they_begin(
    lines: list[str], max_rows: int, max_bytes: int
) -> None:
    content = "\n".join(lines).encode()
    found = records(content)
    blocks = list(blocks_of(iter(found), max_rows, max_bytes))
    assert sum(block.rows for block in blocks) == len(found)
    done = 0
    for block in blocks:
        assert 0 < block.rows <= max_rows
        assert block.size_bytes <= max_bytes or block.rows == 1
        assert records(content, block.offset)[0].content == found[done].content
        assert block.line == found[done].line
        done += block.rows


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_refused_by_name(encoding: str) -> None:
    with pytest.raises(InputError, match=r"UTF-8 in a\.jsonl.*UTF-16"):
        records("\ufeff{}\n".encode(encoding))
