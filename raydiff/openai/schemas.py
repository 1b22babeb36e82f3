"""JSON schemas of bodies, made from what checks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raydiff.decoding import CHOICES, MAX_STOP_CHARACTERS, MAX_STOP_STRINGS, Choice
from raydiff.openai.answers import Dialect
from raydiff.openai.protocol import DIFFUSION_FIELDS, GenerationBody
from raydiff.openai.reading import Body
from raydiff.openai.unsupported import IN_BODY, IN_MESSAGE, Neutral

_STOP = {
    "description": "Texts that end an answer, which is cut before the first of them.",
    "anyOf": [
        {"type": "string", "maxLength": MAX_STOP_CHARACTERS},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARACTERS},
            "maxItems": MAX_STOP_STRINGS,
        },
        {"type": "null"},
    ],
}
_INTEGER = {"type": "integer"}
_USAGE = {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), _INTEGER),
}
_DIFFUSION = {
    "type": "object",
    "properties": {"forwards": _INTEGER, "tokens_per_forward": {"type": "number"}},
}


def body_schema(kind: type[Body]) -> dict[str, Any]:
    """The schema of a body: the fields it honours, and those it accepts with values that ask for
    nothing."""
    schema: dict[str, Any] = _inlined(kind.model_json_schema(), {})
    properties = schema["properties"]
    if issubclass(kind, GenerationBody):
        _describe_decoding(properties)
        _add_unsupported(properties, IN_BODY)
    if "messages" in properties:
        messages = properties["messages"]
        message = messages.get("anyOf", [messages])[0]["items"]
        _add_unsupported(message["properties"], IN_MESSAGE)
        _allow_nulls(message)
    _allow_nulls(schema)
    return schema


def answer_schema(dialect: Dialect) -> dict[str, Any]:
    """The schema of an answer that is not streamed."""
    text = {"text": {"type": "string"}}
    said = {
        "role": {"const": "assistant"},
        "content": {"type": "string"},
        "refusal": {"type": "null"},
    }
    message = {"message": {"type": "object", "required": list(said), "properties": said}}
    own = message if dialect == "chat" else text
    choice = {
        "type": "object",
        "required": ["index", "finish_reason", "logprobs", *own],
        "properties": {
            "index": _INTEGER,
            "finish_reason": {"enum": ["stop", "length"]},
            "logprobs": {"type": ["object", "null"]},
            **own,
        },
    }
    kind = "chat.completion" if dialect == "chat" else "text_completion"
    properties = {
        "id": {"type": "string"},
        "object": {"const": kind},
        "created": _INTEGER,
        "model": {"type": "string"},
        "system_fingerprint": {"type": "string"},
        "service_tier": {"enum": ["default", "flex"]},
        "choices": {"type": "array", "items": choice},
        "usage": _USAGE,
        "diffusion": _DIFFUSION,
    }
    return {"type": "object", "required": list(properties), "properties": properties}


def event_schema(dialect: Dialect) -> dict[str, Any]:
    """The schema of a server-sent event of an answer that is streamed."""
    kind = "chat.completion.chunk" if dialect == "chat" else "text_completion"
    text = f"A {kind} object as JSON, an object with `error`, or [DONE]."
    data = {"type": "string", "description": text, "pattern": r"^(\{.*\}|\[DONE\])$"}
    return {"type": "object", "required": ["data"], "properties": {"data": data}}


def _describe_decoding(properties: dict[str, Any]) -> None:
    for name, choice in CHOICES.items():
        if name in properties:
            properties[name] = _choice_schema(choice)
    properties["top_k"]["minimum"] = -1
    if "max_completion_tokens" in properties:
        properties["max_completion_tokens"] = _choice_schema(CHOICES["max_tokens"])
    properties["stop"] = _STOP
    properties["diffusion"] = {
        "type": "object",
        "description": properties["diffusion"]["description"],
        "properties": {name: _choice_schema(CHOICES[name]) for name in DIFFUSION_FIELDS},
        "additionalProperties": {"type": "null"},
    }
    _allow_nulls(properties["diffusion"])


def _choice_schema(choice: Choice) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": f"{choice.help}."}
    if choice.of:
        return {**schema, "enum": list(choice.of)}
    schema["type"] = {bool: "boolean", int: "integer", float: "number"}[choice.kind]
    if choice.kind is bool:
        return schema
    if choice.low > float("-inf"):
        schema["exclusiveMinimum" if choice.open_low else "minimum"] = choice.low
    if choice.high < float("inf"):
        schema["maximum"] = choice.high
    return schema


def _add_unsupported(properties: dict[str, Any], neutral: Neutral) -> None:
    for name, values in neutral.items():
        if name not in properties:
            text = "Not supported: accepted only with a value that asks for nothing."
            properties[name] = {"description": text, "enum": [*values, None]}


def _allow_nulls(schema: dict[str, Any]) -> None:
    """`null` is absent, also under names that are unknown."""
    required = schema.get("required", [])
    schema["additionalProperties"] = {"type": "null"}
    for name, field in schema["properties"].items():
        if name not in required:
            schema["properties"][name] = _nullable(field)


def _nullable(field: Mapping[str, Any]) -> dict[str, Any]:
    if "enum" in field:
        values = field["enum"]
        return {**field, "enum": values if None in values else [*values, None]}
    if isinstance(field.get("type"), str):
        return {**field, "type": [field["type"], "null"]}
    options = field.get("anyOf")
    if options is not None and {"type": "null"} not in options:
        return {**field, "anyOf": [*options, {"type": "null"}]}
    return dict(field)


def _inlined(value: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with its definitions where they are used, without titles and defaults."""
    if isinstance(value, list):
        return [_inlined(v, definitions) for v in value]
    if not isinstance(value, dict):
        return value
    definitions = {**definitions, **value.get("$defs", {})}
    if "$ref" in value:
        return _inlined(definitions[value["$ref"].rsplit("/", 1)[-1]], definitions)
    kept = {k: v for k, v in value.items() if k not in ("$defs", "title", "default")}
    return {
        k: {n: _inlined(f, definitions) for n, f in v.items()}
        if k == "properties"
        else _inlined(v, definitions)
        for k, v in kept.items()
    }
