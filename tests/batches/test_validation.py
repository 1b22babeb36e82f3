"""Each kind of wrong line has its code and its number, and none is let through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raydiff.batches.validation import MAX_ERRORS, Input, read_input
from raydiff.config import BatchSettings

from .service import COMPLETIONS, MODEL, jsonl, line

SETTINGS = BatchSettings(location="/unused", max_lines=5, max_line_bytes=2000)
MODELS = {MODEL: "path", "other": "path"}


def check(lines: list[Any], models: dict[str, str] | None = None) -> Input:
    return read_input(jsonl(lines).split(b"\n"), COMPLETIONS, models or MODELS, SETTINGS)


@pytest.mark.parametrize(
    ("wrong", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b"[1]", "invalid_json_line", None),
        (b'{"custom_id": "\xff"}', "invalid_json_line", None),
        (b'{"custom_id": "\\ud800"}', "invalid_json_line", None),
        (b'{"custom_id": NaN}', "invalid_json_line", None),
        (b"[" * 100_000, "line_too_long", None),
        (b"[" * 1900, "invalid_json_line", None),
        (line(1, custom_id=None), "missing_required_parameter", "custom_id"),
        (line(1, custom_id=7), "invalid_parameter", "custom_id"),
        (line(1, custom_id=""), "invalid_parameter", "custom_id"),
        (line(0), "duplicate_custom_id", "custom_id"),
        (line(1, method="GET"), "invalid_method", "method"),
        (line(1, method=None), "missing_required_parameter", "method"),
        (line(1, url="/v1/chat/completions"), "invalid_url", "url"),
        (line(1, body=None), "missing_required_parameter", "body"),
        (line(1, body="text"), "invalid_parameter", "body"),
        (line(1, body={"model": "absent"}), "model_not_found", "model"),
        (line(1, body={}), "model_not_found", "model"),
        (line(1, body={"model": "other"}), "mismatched_model", "model"),
        (line(1, priority=3), "unknown_parameter", "priority"),
    ],
)
def test_a_wrong_line_is_named(wrong: Any, code: str, param: str | None) -> None:
    found = check([line(0), wrong])
    assert [(e.line, e.code, e.param) for e in found.errors] == [(2, code, param)]


def test_sound_lines_keep_their_order_and_bodies() -> None:
    found = check([line(0), b"", b"  ", line(1)])
    assert [r.custom_id for r in found.requests] == ["id-0", "id-1"]
    assert json.loads(found.requests[1].body) == line(1)["body"]
    assert (found.errors, found.model) == ([], MODEL)


def test_a_model_may_be_left_out_where_there_is_one() -> None:
    assert check([line(0, body={"prompt": "x"})], {MODEL: "path"}).model == MODEL


def test_an_empty_file_and_one_with_too_many_lines_are_refused() -> None:
    assert [e.code for e in check([]).errors] == ["empty_file"]
    found = check([line(number) for number in range(6)])
    assert [(e.line, e.code) for e in found.errors] == [(6, "too_many_requests")]


def test_not_every_error_of_a_file_of_nonsense_is_told() -> None:
    assert len(check([b"nonsense"] * 1000).errors) == MAX_ERRORS
