"""What is logged of requests: one line each if asked for, and of failures never a caller's text."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raydiff.config import AccessSettings

MAX_PATH_CHARACTERS = 200
_log = logging.getLogger(__name__)


def print_line(line: str) -> None:
    """Write a line to the process's own standard output, which Serve would put prefixes on."""
    print(line, file=sys.__stdout__, flush=True)


class RequestLog:
    """The outermost part of the ASGI application.

    Exceptions end here: whatever serves the application would log them with their messages, and
    those may quote a prompt.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: AccessSettings,
        write: Callable[[str], None] = print_line,
    ) -> None:
        self._app = app
        self._lines = settings.log_requests
        self._text = settings.log_text
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen(send)
        started_s = time.monotonic()
        try:
            await self._app(scope, receive, seen.send)
        except Exception as error:
            _log.error("%s", described(error, text=self._text))
            if not seen.complete:
                raise BrokenResponse from None
        finally:
            if self._lines:
                self._write(json.dumps(_line(scope, seen, time.monotonic() - started_s)))


class BrokenResponse(Exception):
    """A response that could not be finished; the log has the reason."""


class _Seen:
    """What went out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.complete = True


def _line(scope: Scope, seen: _Seen, seconds: float) -> dict[str, Any]:
    state: dict[str, Any] = scope.get("state") or {}
    usage = state.get("usage")
    return {
        "time": round(time.time(), 3),
        "request_id": state.get("request_id"),
        "key_id": state.get("key_id"),
        "method": scope["method"],
        "path": scope["path"][:MAX_PATH_CHARACTERS],
        "model": state.get("model"),
        "status": seen.status,
        "complete": seen.complete,
        "error": state.get("error"),
        "prompt_tokens": None if usage is None else usage.prompt_tokens,
        "completion_tokens": None if usage is None else usage.completion_tokens,
        "seconds": round(seconds, 4),
    }


def described(error: BaseException, *, text: bool) -> str:
    """An exception for the log: its kind and where it was raised, and with `text` its message."""
    if text:
        return "".join(traceback.format_exception(error))
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{f.name} ({f.filename}:{f.lineno})" for f in reversed(frames))
    kind = type(error)
    return (
        f"{kind.__module__}.{kind.__qualname__} in {places or 'an unknown place'}. "
        "(access.log_text shows messages too.)"
    )
