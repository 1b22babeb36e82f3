"""A form is taken apart alike, however its bytes are cut on the way."""

from __future__ import annotations

from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydiff.errors import UsageError
from raydiff.serve.multipart import MAX_HEADER_BYTES, FormParser, PartBegins, boundary_of

Parts = list[tuple[str, str | None, bytes]]


def parse(body: bytes, boundary: bytes, cuts: list[int]) -> tuple[Parts, bool]:
    parser = FormParser(boundary)
    parts: Parts = []
    edges = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    for start, stop in pairwise(edges):
        for event in parser.feed(body[start:stop]):
            if isinstance(event, PartBegins):
                parts.append((event.name, event.filename, b""))
            else:
                name, filename, content = parts[-1]
                parts[-1] = (name, filename, content + event.data)
    return parts, parser.complete


@given(
    content=st.binary(max_size=200)
    | st.lists(st.sampled_from([b"\r\n", b"--", b"b", b"-"])).map(b"".join),
    purpose=st.text("abc", max_size=5),
    cuts=st.lists(st.integers(0, 2000), max_size=40),
)
def test_a_form_of_a_real_client_comes_apart_wherever_it_is_cut(
    content: bytes, purpose: str, cuts: list[int]
) -> None:
    boundary = "bb-boundary"
    request = httpx.Request(
        "POST",
        "http://test/",
        data={"purpose": purpose},
        files={"file": ("in.jsonl", content)},
        headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )
    if boundary.encode() in content:
        return
    found = boundary_of(request.headers["content-type"])
    parts, complete = parse(request.read(), found, cuts)
    assert complete
    assert parts == [("purpose", None, purpose.encode()), ("file", "in.jsonl", content)]


def test_what_comes_before_and_after_the_form_does_not_count() -> None:
    body = b'preamble\r\n--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nv\r\n--b--\r\nrest'
    assert parse(body, b"b", []) == ([("x", None, b"v")], True)


def test_a_form_that_breaks_off_is_not_complete() -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nv\r\n--b'
    assert parse(body, b"b", [])[1] is False


@pytest.mark.parametrize(
    "body",
    [
        b"--b\r\nContent-Type: text/plain\r\n\r\nv\r\n--b--",
        b"--bjunk\r\n\r\n",
        b"--b\r\n" + b"x" * (MAX_HEADER_BYTES + 1),
        b"--b" + b" " * (MAX_HEADER_BYTES + 1),
    ],
)
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(UsageError, match="expected a form"):
        parse(body, b"b", [])


@pytest.mark.parametrize("header", ["", "application/json", "multipart/form-data"])
def test_another_content_type_is_refused(header: str) -> None:
    with pytest.raises(UsageError, match="content-type"):
        boundary_of(header)
