"""Checks the whole input of a batch before anything runs: its lines, not what is in the bodies.

A body that the endpoint would refuse is answered in the error file, as it would be online; a line
that is no request at all, or not one of this batch, fails the batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from raydiff.batches.records import LineError
from raydiff.config import BatchSettings, Endpoint
from raydiff.errors import UsageError, invalid
from raydiff.openai import strict_json

MAX_ERRORS = 100
"""Errors that a failed batch names."""
_MAX_ID = 512
_FIELDS = ("custom_id", "method", "url", "body")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One line."""

    custom_id: str
    body: str
    """As JSON."""


@dataclass(kw_only=True)
class Input:
    """What a file's lines came to. It may run if there are no errors."""

    requests: list[Request] = field(default_factory=list)
    errors: list[LineError] = field(default_factory=list)
    model: str = ""
    """That all requests ask for; empty when they name none."""


class _Wrong(Exception):
    """A line that cannot stand."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


def read_input(
    lines: Iterable[bytes],
    endpoint: Endpoint,
    models: Mapping[str, str],
    settings: BatchSettings,
) -> Input:
    """Check every line; blank ones do not count. `models` are those that may be asked for."""
    checker = _Checker(endpoint, models, settings)
    found = Input()
    for number, line in _numbered(lines):
        try:
            if len(found.requests) == settings.max_lines:
                expected = f"at most {settings.max_lines} requests"
                raise _Wrong("too_many_requests", invalid("file", expected=expected, got="more"))
            found.requests.append(checker.check(line))
        except _Wrong as error:
            found.errors.append(
                LineError(code=error.code, message=str(error), line=number, param=error.param)
            )
            if len(found.errors) == MAX_ERRORS or error.code == "too_many_requests":
                break
    if not found.requests and not found.errors:
        message = "file: expected one request a line, got no line."
        found.errors.append(LineError(code="empty_file", message=message))
    found.model = checker.model or ""
    return found


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, line


class _Checker:
    """Checks line after line, with what they must have in common."""

    def __init__(
        self, endpoint: Endpoint, models: Mapping[str, str], settings: BatchSettings
    ) -> None:
        self._endpoint = endpoint
        self._models = models
        self._max_line_bytes = settings.max_line_bytes
        self._lines_of: dict[str, None] = {}
        self.model: str | None = None

    def check(self, line: bytes) -> Request:
        """The request of a line.

        Raises:
            _Wrong: it is none.
        """
        fields = self._fields(line)
        custom_id = self._custom_id(fields)
        self._expect(fields, "method", "POST", "invalid_method")
        self._expect(fields, "url", self._endpoint, "invalid_url")
        body = fields.get("body")
        if not isinstance(body, dict):
            raise _missing_or_wrong("body", "an object", body)
        self._check_model(body.get("model"))
        self._lines_of[custom_id] = None
        return Request(custom_id=custom_id, body=json.dumps(body, ensure_ascii=False))

    def _fields(self, line: bytes) -> dict[str, Any]:
        if len(line) > self._max_line_bytes:
            expected = f"at most {self._max_line_bytes} bytes"
            raise _Wrong("line_too_long", invalid("line", expected=expected, got=len(line)))
        try:
            fields = decode_line(line)
        except UsageError as error:
            raise _Wrong("invalid_json_line", str(error)) from None
        if not isinstance(fields, dict):
            message = invalid("line", expected="a JSON object", got=type(fields).__name__)
            raise _Wrong("invalid_json_line", message)
        unknown = next((name for name in fields if name not in _FIELDS), None)
        if unknown is not None:
            message = f"{unknown}: unknown field. Known are {', '.join(_FIELDS)}."
            raise _Wrong("unknown_parameter", message, unknown)
        return fields

    def _custom_id(self, fields: Mapping[str, Any]) -> str:
        custom_id = fields.get("custom_id")
        if not isinstance(custom_id, str) or not 0 < len(custom_id) <= _MAX_ID:
            expected = f"a string of 1 to {_MAX_ID} characters"
            raise _missing_or_wrong("custom_id", expected, custom_id)
        if custom_id in self._lines_of:
            message = invalid("custom_id", expected="one that no other line has", got=custom_id)
            raise _Wrong("duplicate_custom_id", message, "custom_id")
        return custom_id

    def _expect(self, fields: Mapping[str, Any], name: str, expected: str, code: str) -> None:
        got = fields.get(name)
        if got is None:
            raise _missing_or_wrong(name, expected, got)
        if got != expected:
            raise _Wrong(code, invalid(name, expected=repr(expected), got=got), name)

    def _check_model(self, name: Any) -> None:
        if name is None and len(self._models) == 1:
            name = next(iter(self._models))
        if not isinstance(name, str) or name not in self._models:
            expected = f"one of {', '.join(sorted(self._models))}"
            raise _Wrong("model_not_found", invalid("model", expected=expected, got=name), "model")
        if self.model not in (None, name):
            expected = f"the model of the lines before, {self.model!r}"
            raise _Wrong("mismatched_model", invalid("model", expected=expected, got=name), "model")
        self.model = name


def decode_line(line: bytes) -> Any:
    """Decode a line: UTF-8, no NaN, no half of a surrogate pair.

    Raises:
        UsageError: it is no such text.
    """
    try:
        return strict_json.loads(line.decode("utf-8"))
    except UnicodeError:
        raise UsageError("line: expected Unicode text in UTF-8.") from None
    except RecursionError:
        raise UsageError("line: expected JSON with less nesting.") from None
    except ValueError as error:
        raise UsageError(f"line: expected JSON: {error}.") from None


def _missing_or_wrong(name: str, expected: str, got: Any) -> _Wrong:
    if got is None:
        message = f"{name}: required, but missing."
        return _Wrong("missing_required_parameter", message, name)
    return _Wrong("invalid_parameter", invalid(name, expected=expected, got=got), name)
