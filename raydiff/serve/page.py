"""An OpenAPI document as one HTML page, without scripts and without other files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ddd;"
    "padding:.3em .6em;text-align:left;vertical-align:top}code{background:#f4f4f4}"
    "summary{cursor:pointer}"
)


def page_of(document: Mapping[str, Any]) -> str:
    """The page: each operation with its parameters, the fields of its body and its answers."""
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info['description'])}</p>",
        '<p>The same for machines: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    for path, item in document["paths"].items():
        for method, operation in item.items():
            parts += _operation(f"{method.upper()} {path}", operation)
    return "".join(parts)


def _operation(name: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(name)}</code></h2><p>{escape(operation['summary'])}</p>"
    parameters = operation.get("parameters", [])
    yield "<details><summary>Headers and parameters</summary><table>"
    for parameter in parameters:
        schema, text = parameter["schema"], parameter.get("description", "")
        yield _row(parameter["name"], f"{_type(schema)}, in {parameter['in']}", text)
    yield "</table></details>"
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<details open><summary>Body, {escape(media)}</summary><table>"
        yield from _fields(content["schema"], "")
        yield "</table></details>"
    yield "<details><summary>Answers</summary><table>"
    for status, response in operation["responses"].items():
        yield _row(status, ", ".join(response.get("content", {})), response["description"])
    yield "</table></details>"


def _fields(schema: Mapping[str, Any], prefix: str) -> Iterator[str]:
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        kind = _type(field) + (", required" if name in required else "")
        yield _row(prefix + name, kind, field.get("description", ""))
        if field.get("properties"):
            yield from _fields(field, f"{prefix}{name}.")


def _row(name: str, kind: str, text: str) -> str:
    return (
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(text)}</td>"
        "</tr>"
    )


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(_value(v) for v in schema["enum"])
    if "const" in schema:
        return _value(schema["const"])
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(_type(option) for option in options)
    kinds = schema.get("type", "any")
    return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)


def _value(value: Any) -> str:
    return "null" if value is None else repr(value)
