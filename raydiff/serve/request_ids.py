"""Request ids: `x-request-id` in and out, streams and errors included."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raydiff.openai.problems import Problem
from raydiff.serve.refusals import refusal

HEADER = "x-request-id"
MAX_CHARACTERS = 200
_VALID = re.compile(rf"[!-~]{{1,{MAX_CHARACTERS}}}")
_STATE = "request_id"


def request_id_of(connection: HTTPConnection) -> str:
    """The id of a request that came through `RequestIds`."""
    return str(connection.scope["state"][_STATE])


class RequestIds:
    """Gives every request an id, the client's own if it sends one, and answers with it.

    An id of other characters than visible ASCII, or longer than `MAX_CHARACTERS`, is refused.
    """

    def __init__(self, app: ASGIApp, *, answers: bool = True) -> None:
        """`answers`: whether to put the id on responses. Serve's HTTP servers do it by
        themselves, with the id that they pass on, and a second header would be one too many."""
        self._app = app
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER)
        valid = given is None or _VALID.fullmatch(given) is not None
        request_id = given if given is not None and valid else uuid.uuid4().hex
        scope.setdefault("state", {})[_STATE] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        out = send_with_id if self._answers else send
        app = self._app if valid else refusal(_wrong_id())
        await app(scope, receive, out)


def _wrong_id() -> Problem:
    message = f"{HEADER}: expected 1 to {MAX_CHARACTERS} visible ASCII characters."
    return Problem(status=400, message=message, param=HEADER)
