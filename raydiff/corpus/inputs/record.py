"""One record of a text file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Record:
    """Where a record is, and its content: a line of JSON, or the fields of a CSV row."""

    offset: int
    """Byte of the decompressed file at which it begins."""
    line: int
    """Its first line in the file, from 1."""
    size: int
    """Bytes, with line ends."""
    content: Any
    problem: str | None
    """Why it cannot be used, if so."""
