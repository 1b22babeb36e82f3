"""The end of a gateway: what is in flight ends, what comes is sent elsewhere."""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from raydiff.openai.problems import Problem

RETRY_AFTER_S = 5.0
_SHUTTING_DOWN = Problem(
    status=503,
    message="The service is shutting down. Try again.",
    type="service_unavailable_error",
    code="shutting_down",
    retry_after_s=RETRY_AFTER_S,
)


class Drain:
    """Counts the HTTP requests that run; once it drains, new ones get 503 with `Retry-After`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._draining = False
        self._in_flight = 0

    def begin(self) -> int:
        """Refuse new requests from now on; how many still run."""
        self._draining = True
        return self._in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._draining:
            response = JSONResponse(
                _SHUTTING_DOWN.body(),
                status_code=_SHUTTING_DOWN.status,
                headers={**_SHUTTING_DOWN.headers(), "Connection": "close"},
            )
            await response(scope, receive, send)
            return
        self._in_flight += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_flight -= 1
