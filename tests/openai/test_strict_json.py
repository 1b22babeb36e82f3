"""JSON from clients, as text or as bytes."""

from __future__ import annotations

from typing import Any

import pytest

from raydiff.openai.strict_json import loads


@pytest.mark.parametrize("text", ['{"a": NaN}', "[-Infinity]", '"\\ud83d"', '"\\uDE00"', "{"])
def test_what_is_no_strict_json_is_refused(text: str) -> None:
    for given in (text, text.encode()):
        with pytest.raises(ValueError, match=r"."):
            loads(given)


@pytest.mark.parametrize(
    ("text", "value"),
    [('"\\ud83d\\ude00"', "\N{GRINNING FACE}"), ('{"a": [1, null]}', {"a": [1, None]})],
)
def test_what_is_json_is_decoded(text: str, value: Any) -> None:
    assert loads(text) == loads(text.encode()) == value
