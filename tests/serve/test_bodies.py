"""Reading bodies and deadlines."""

from __future__ import annotations

import pytest
from fastapi import Request

from raydiff.errors import UsageError
from raydiff.serve.access.sizes import MAX_JSON_DEPTH
from raydiff.serve.bodies import TIMEOUT_HEADER, deadline_s, parse_json


def request_with(timeout: str | None) -> Request:
    headers = [] if timeout is None else [(TIMEOUT_HEADER.encode(), timeout.encode())]
    return Request({"type": "http", "headers": headers})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"a": NaN}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b"[" * 100_000,
        b"9" * 5000,
    ],
)
def test_what_is_no_strict_json_text_is_refused(raw: bytes) -> None:
    with pytest.raises(UsageError, match="body"):
        parse_json(raw)


def test_escaped_surrogate_pairs_are_characters() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_a_deadline_named_by_the_client_is_kept_a_little_early() -> None:
    assert deadline_s(request_with("10"), 600, 3600) == 9
    assert deadline_s(request_with("1"), 600, 3600) == pytest.approx(0.8)


def test_without_a_header_the_apps_deadline_holds() -> None:
    assert deadline_s(request_with(None), 600, 60) == 600


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "", "3601"])
def test_a_deadline_must_be_a_positive_number_that_is_not_too_large(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        deadline_s(request_with(text), 600, 3600)
    assert caught.value.param == TIMEOUT_HEADER


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_json_may_be_nested_only_so_deep() -> None:
    parse_json(nested(MAX_JSON_DEPTH))
    parse_json(b"[" + b",".join([b"[]"] * 1000) + b"]")
    for depth in (MAX_JSON_DEPTH + 1, 500, 100_000):
        with pytest.raises(UsageError, match="nest"):
            parse_json(nested(depth))
