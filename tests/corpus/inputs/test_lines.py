"""Lines are split without holding more than one, and never more than the longest allowed."""

from __future__ import annotations

import io
import tracemalloc

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.inputs.lines import split_lines


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(1, 20))
def test_lines_joined_are_the_file(content: bytes, chunk: int) -> None:
    expected = io.BytesIO(content).readlines()
    found = list(split_lines(pa.BufferReader(content), chunk_bytes=chunk))
    assert [line for line, _ in found] == expected
    assert [size for _, size in found] == [len(line) for line in expected]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=10), st.integers(1, 20), st.integers(1, 20))
def test_only_lines_that_are_too_long_are_left_out(
    lines: list[bytes], most: int, chunk: int
) -> None:
    content = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    expected = io.BytesIO(content).readlines()
    found = list(split_lines(pa.BufferReader(content), max_bytes=most, chunk_bytes=chunk))
    assert [size for _, size in found] == [len(line) for line in expected]
    for (line, size), original in zip(found, expected, strict=True):
        assert line == original or (line is None and size > most)
        assert line is not None or size > most


def test_a_line_that_is_too_long_is_not_held() -> None:
    stream = pa.BufferReader(b"x" * 2**24 + b"\nend\n")
    tracemalloc.start()
    found = list(split_lines(stream, max_bytes=2**16, chunk_bytes=2**14))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [(None, 2**24 + 1), (b"end\n", 4)]
    assert peak < 2**20
