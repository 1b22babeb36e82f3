"""Forms with files (`multipart/form-data`), taken apart as they arrive: nothing but a few kilobytes
is ever held. The framework's own parser needs a package that raydiff does without, and keeps whole
files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from raydiff.errors import UsageError, invalid

MAX_HEADER_BYTES = 8 * 1024
_PARAMETER = re.compile(r';\s*(\w+)="((?:[^"\\]|\\.)*)"')
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class PartBegins:
    """A field of the form."""

    name: str
    filename: str | None
    """Of files."""


@dataclass(frozen=True, kw_only=True)
class PartData:
    """Some of the content of the field that began last."""

    data: bytes


FormEvent = PartBegins | PartData


def boundary_of(content_type: str) -> bytes:
    """What separates the parts of a body with this header.

    Raises:
        UsageError: it is no form with files.
    """
    found = _BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/form-data") or found is None:
        expected = "multipart/form-data with a boundary"
        raise UsageError(invalid("content-type", expected=expected, got=content_type))
    return (found[1] or found[2]).encode("latin-1", "replace")


class FormParser:
    """Fed with a body bit by bit, in pieces of any size."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._waiting = bytearray(b"\r\n")  # the first boundary may be the very beginning
        self._state: Literal["preamble", "boundary", "headers", "content", "end"] = "preamble"

    @property
    def complete(self) -> bool:
        """Whether the last boundary has come."""
        return self._state == "end"

    def feed(self, data: bytes) -> Iterator[FormEvent]:
        """What a further bit of the body brings; to be taken to its end.

        Raises:
            UsageError: it is no form.
        """
        self._waiting += data
        while True:
            if self._state in ("preamble", "content"):
                found, content = self._content()
                if content and self._state == "content":
                    yield PartData(data=content)
                if not found:
                    return
                self._state = "boundary"
            elif self._state == "boundary":
                if not self._after_boundary():
                    return
            elif self._state == "headers":
                part = self._headers()
                if part is None:
                    return
                self._state = "content"
                yield part
            else:
                return

    def _content(self) -> tuple[bool, bytes]:
        """Whether the next boundary has come, and what certainly comes before it."""
        index = self._waiting.find(self._delimiter)
        if index >= 0:
            content = bytes(self._waiting[:index])
            del self._waiting[: index + len(self._delimiter)]
            return True, content
        certain = max(0, len(self._waiting) - len(self._delimiter) + 1)
        content = bytes(self._waiting[:certain])
        del self._waiting[:certain]
        return False, content

    def _after_boundary(self) -> bool:
        """Take what follows a boundary: its line's end, or two dashes after the last one."""
        if self._waiting.startswith(b"--"):
            self._state = "end"
            return True
        end = self._waiting.find(b"\r\n")
        if end < 0:
            if len(self._waiting) > MAX_HEADER_BYTES:
                raise _malformed("a line's end after each boundary")
            return False
        if self._waiting[:end].strip():
            raise _malformed("nothing but white space after a boundary")
        del self._waiting[: end + 2]
        self._state = "headers"
        return True

    def _headers(self) -> PartBegins | None:
        end = self._waiting.find(b"\r\n\r\n")
        if end < 0:
            if len(self._waiting) > MAX_HEADER_BYTES:
                raise _malformed(f"at most {MAX_HEADER_BYTES} bytes of headers in a part")
            return None
        head = bytes(self._waiting[:end])
        del self._waiting[: end + 4]
        return _part_of(head)


def _part_of(head: bytes) -> PartBegins:
    for line in head.decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            parameters = dict(_PARAMETER.findall(value))
            if "name" in parameters:
                return PartBegins(name=parameters["name"], filename=parameters.get("filename"))
    raise _malformed("a name in each part's Content-Disposition")


def _malformed(expected: str) -> UsageError:
    return UsageError(f"body: expected a form with {expected}.")
