"""What `prompt` and `content` may hold: texts, tokens, parts."""

from __future__ import annotations

from typing import Any

MAX_PROMPTS = 1024
"""Most prompts in one request."""

Prompt = str | tuple[int, ...]
"""Text, or token ids of a text."""

_PROMPT_SHAPES = "expected a string, a list of strings, a list of token ids or a list of such lists"


def prompts_of(value: Any) -> list[Prompt]:
    """One prompt per row, from any shape of `prompt`.

    Raises:
        ValueError: it has none of them.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise ValueError(_PROMPT_SHAPES)
    if all(_is_token(v) for v in value):
        return [tuple(value)]
    if len(value) > MAX_PROMPTS:
        raise ValueError(f"expected at most {MAX_PROMPTS} prompts, got {len(value)}")
    return [_one_prompt(v) for v in value]


def _one_prompt(value: Any) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(_is_token(v) for v in value):
        return tuple(value)
    raise ValueError(_PROMPT_SHAPES)


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def text_of(value: Any) -> str:
    """The text of a message's content; parts are joined by line ends.

    Raises:
        ValueError: it is not text.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("expected a string or a list of text parts")
    return "\n".join(_part_text(part) for part in value)


def _part_text(part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        raise ValueError(f"expected parts of type 'text', got {kind!r}")
    text = part.get("text")
    if not isinstance(text, str) or set(part) - {"type", "text"}:
        raise ValueError("expected a text part with 'type' and 'text' only")
    return text


_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
PROMPT_SCHEMA: dict[str, Any] = {
    "description": "A text, the tokens of one, or a list of either, each answered by itself.",
    "anyOf": [
        {"type": "string"},
        _IDS,
        {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, _IDS]},
            "minItems": 1,
            "maxItems": MAX_PROMPTS,
        },
    ],
}
"""JSON schema of what `prompts_of` takes."""

CONTENT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "text"],
                "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
                "additionalProperties": False,
            },
        },
    ]
}
"""JSON schema of what `text_of` takes."""
