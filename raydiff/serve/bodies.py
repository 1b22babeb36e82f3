"""Reading request bodies and headers, with limits."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from starlette.requests import Request

from raydiff.errors import UsageError, invalid
from raydiff.openai import strict_json
from raydiff.openai.problems import HttpRefusal, Problem
from raydiff.serve.access.sizes import check_depth

TIMEOUT_HEADER = "x-request-timeout-seconds"
"""Also read by Serve's proxy, which answers in plain text: the gateway must be first."""

THREAD_BYTES = 16 * 1024
"""Bodies from this size on are parsed and tokenised in a thread, off the event loop."""

_MARGIN = 0.2
_MAX_MARGIN_S = 1.0
_MAX_ECHO = 40


async def read_json(request: Request, max_bytes: int) -> tuple[Any, int]:
    """The decoded body and its size in bytes.

    Raises:
        HttpRefusal: it exceeds `max_bytes` (413).
        UsageError: it is no JSON text.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(int(declared), max_bytes)
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > max_bytes:
            raise _too_large(len(raw), max_bytes)
    if len(raw) < THREAD_BYTES:
        return parse_json(bytes(raw)), len(raw)
    return await asyncio.to_thread(parse_json, bytes(raw)), len(raw)


def parse_json(raw: bytes) -> Any:
    """Decode strict JSON: no NaN, no half of a surrogate pair.

    Raises:
        UsageError: it is no such text.
    """
    try:
        value = strict_json.loads(raw)
        check_depth(raw, value)
    except UnicodeEncodeError:
        message = "body: expected Unicode text, got half of a surrogate pair."
        raise UsageError(message) from None
    except UnicodeDecodeError:
        raise UsageError("body: expected JSON in UTF-8.") from None
    except RecursionError:
        raise UsageError("body: expected JSON with less nesting.") from None
    except ValueError as error:
        raise UsageError(f"body: expected JSON: {error}.") from None
    return value


def deadline_s(request: Request, default_s: float, max_s: float) -> float:
    """Seconds that the request may take, by its header or the app's default.

    A header's deadline is kept a fifth early, at most a second, so that the client gets the
    gateway's answer and not that of Serve's proxy, which began to count before the gateway did.

    Raises:
        UsageError: the header is no positive number, or above `max_s`.
    """
    text = request.headers.get(TIMEOUT_HEADER)
    if text is None:
        return default_s
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= max_s:
        expected = f"a number of seconds above 0 and at most {max_s:g}"
        message = invalid(TIMEOUT_HEADER, expected=expected, got=text[:_MAX_ECHO])
        raise UsageError(message, TIMEOUT_HEADER)
    return seconds - min(_MAX_MARGIN_S, seconds * _MARGIN)


def _too_large(got: int, limit: int) -> HttpRefusal:
    message = invalid("body", expected=f"at most {limit} bytes", got=got)
    return HttpRefusal(Problem(status=413, message=message, code="body_too_large"))
