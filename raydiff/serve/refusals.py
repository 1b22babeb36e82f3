"""Errors as answers: every path, method and failure has OpenAI's error body."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

from raydiff.errors import RaydiffError
from raydiff.openai.problems import HttpRefusal, Problem, problem_of


def refusal(problem: Problem) -> Response:
    """The answer that says so."""
    return JSONResponse(problem.body(), status_code=problem.status, headers=problem.headers())


async def _answer_error(_: Request, error: Exception) -> Response:
    return refusal(problem_of(error))


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        message, code = f"{path}: no such path.", "not_found"
    else:
        message, code = f"{request.method} {path}: {error.detail}.", "method_not_allowed"
    response = refusal(Problem(status=error.status_code, message=message, code=code))
    response.headers.update(error.headers or {})
    return response


HANDLERS: dict[int | type[Exception], ExceptionHandler] = {
    RaydiffError: _answer_error,
    HttpRefusal: _answer_error,
    Exception: _answer_error,
    HTTPException: _answer_http_exception,
}
"""Of the ASGI application."""
