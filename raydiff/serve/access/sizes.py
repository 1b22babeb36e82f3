"""How large a request may be, beside the bytes of its body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from raydiff.errors import PromptTooLong, UsageError, invalid
from raydiff.openai.problems import Problem
from raydiff.request import GenerationRequest

MAX_JSON_DEPTH = 32
"""Lists and objects within each other; what the API defines has 5."""


class HeaderLimit:
    """Refuses requests whose path and headers are too long (431), before anything reads them."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            size = _header_bytes(scope)
            if size > self._max_bytes:
                expected = f"at most {self._max_bytes} bytes"
                message = invalid("headers", expected=expected, got=size)
                problem = Problem(status=431, message=message, code="headers_too_large")
                app = JSONResponse(problem.body(), status_code=problem.status)
        await app(scope, receive, send)


def check_depth(raw: bytes, value: Any) -> None:
    """Refuse JSON that is nested too deeply; `raw` is its text.

    Raises:
        UsageError: it is.
    """
    if raw.count(b"[") + raw.count(b"{") <= MAX_JSON_DEPTH:
        return  # most bodies, without a walk through them
    level, depth = [value], 0
    while level:
        level = [child for node in level for child in _children(node)]
        depth += bool(level)
        if depth >= MAX_JSON_DEPTH:
            expected = f"JSON nested at most {MAX_JSON_DEPTH} deep"
            raise UsageError(invalid("body", expected=expected, got="more"))


def check_rows(
    requests: Sequence[GenerationRequest], max_rows: int, max_prompt_tokens: int
) -> None:
    """Refuse a request that asks for too many answers, or too long prompts in all.

    Raises:
        UsageError: it does; it will never pass, however long it waits.
    """
    if len(requests) > max_rows:
        remedy = "Send several requests."
        expected = f"at most {max_rows} answers (prompts times n)"
        raise UsageError(
            invalid("prompt", expected=expected, got=len(requests), remedy=remedy), "prompt"
        )
    tokens = sum(len(request.prompt_ids) for request in requests)
    if tokens > max_prompt_tokens:
        expected = f"at most {max_prompt_tokens} prompt tokens in one request"
        raise PromptTooLong(
            invalid("prompt", expected=expected, got=tokens, remedy="Send several requests."),
            "prompt",
        )


def _children(node: Any) -> list[Any]:
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [child for child in inner if isinstance(child, dict | list)]


def _header_bytes(scope: Scope) -> int:
    size = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    return size + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
