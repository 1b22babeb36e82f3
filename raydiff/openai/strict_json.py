"""JSON as clients must send it: no NaN, no half of a surrogate pair."""

from __future__ import annotations

import json
from typing import Any, NoReturn


def loads(text: str | bytes) -> Any:
    """Decode strict JSON.

    Raises:
        UnicodeEncodeError: a string has half of a surrogate pair.
        UnicodeDecodeError: bytes are no text.
        RecursionError: it is nested too deeply.
        ValueError: it is no JSON otherwise.
    """
    value = json.loads(text, parse_constant=_refuse_constant)
    if _may_have_surrogates(text):
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _may_have_surrogates(text: str | bytes) -> bool:
    if isinstance(text, bytes):
        return b"\\ud" in text or b"\\uD" in text
    return "\\ud" in text or "\\uD" in text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
