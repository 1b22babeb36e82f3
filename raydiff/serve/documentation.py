"""`/openapi.json`, and `/docs`: a page that shows it without any other host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from raydiff.serve.page import page_of
from raydiff.version import __version__

_REASONS = {
    400: "A field or header cannot be served as given; `param` names it.",
    401: "No valid API key.",
    404: "No such model, file, batch or path, or not for this key.",
    408: "The deadline passed.",
    409: "The state of the thing does not allow it.",
    413: "The body is too large.",
    429: "Queues are full or a limit of the key is reached; `Retry-After` says how long to wait.",
    500: "The server failed.",
    503: "No replica can be reached; `Retry-After` says how long to wait.",
}
_ALWAYS = (400, 401, 500, 503)

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}

_REQUEST_ID = {
    "name": "x-request-id",
    "in": "header",
    "required": False,
    "description": "An id of your own; without one the server makes one up.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
}
_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}
}
_RETRIABLE = (429, 503)


def answer(description: str, schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An OpenAPI response of JSON, with its request id."""
    header = {"description": "The request's id.", "schema": {"type": "string"}, "required": True}
    body = {} if schema is None else {"content": {"application/json": {"schema": dict(schema)}}}
    return {"description": description, "headers": {"x-request-id": header}, **body}


def operation(
    operation_id: str,
    summary: str,
    answers: Mapping[str, Any],
    *,
    body: Mapping[str, Any] | None = None,
    refusals: tuple[int, ...] = (),
    max_deadline_s: float | None = None,
) -> dict[str, Any]:
    """An OpenAPI operation: with the headers and errors that all have, and `refusals` beside.

    `body` is the schema of its JSON body; `max_deadline_s` the longest deadline that a request
    may ask for, where it may.
    """
    errors = {str(s): _error(s) for s in sorted({*_ALWAYS, *refusals})}
    timeout = [] if max_deadline_s is None else [_timeout(max_deadline_s)]
    made: dict[str, Any] = {
        "operationId": operation_id,
        "summary": summary,
        "parameters": [_REQUEST_ID, *timeout],
        "responses": {**answers, **errors},
    }
    if body is not None:
        content = {"application/json": {"schema": dict(body)}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _error(status: int) -> dict[str, Any]:
    made = answer(_REASONS[status], ERROR_SCHEMA)
    if status in _RETRIABLE:
        made["headers"] = {**made["headers"], **_RETRY_AFTER}
    return made


def _timeout(longest_s: float) -> dict[str, Any]:
    return {
        "name": "x-request-timeout-seconds",
        "in": "header",
        "required": False,
        "description": "Deadline; 408 when it passes, and what runs is stopped.",
        "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": longest_s},
    }


class Documentation:
    """The document of all paths, and the page that shows it; open to everyone."""

    def __init__(self, paths: Mapping[str, Any]) -> None:
        self._document = {
            "openapi": "3.1.0",
            "info": {
                "title": "raydiff",
                "version": __version__,
                "description": (
                    "Diffusion language models behind OpenAI's text endpoints. Unknown fields, "
                    "and values that cannot be served, are refused by name. `null` means absent."
                ),
            },
            "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
            "security": [{}, {"key": []}],
            "paths": dict(paths),
        }
        self._page = page_of(self._document)

    def add_to(self, app: Starlette) -> None:
        app.router.add_route("/openapi.json", self.document, methods=["GET"])
        app.router.add_route("/docs", self.page, methods=["GET"])

    async def document(self, _: Request) -> Response:
        """`GET /openapi.json`."""
        return JSONResponse(self._document)

    async def page(self, _: Request) -> Response:
        """`GET /docs`."""
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(self._page, headers={"Content-Security-Policy": policy})
