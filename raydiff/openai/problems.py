"""Errors as HTTP sees them: a status and OpenAI's error body."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raydiff.errors import (
    ClusterError,
    DeadlineExceeded,
    ModelError,
    Overloaded,
    PromptTooLong,
    RaydiffError,
    RequestCancelled,
    UsageError,
)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One refusal: what the status line, the headers and the body say."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None
    more_headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """OpenAI's error body."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """`Retry-After` in whole seconds, where trying again is worth it, and `more_headers`."""
        if self.retry_after_s is None:
            return dict(self.more_headers)
        return {**self.more_headers, "Retry-After": str(max(1, math.ceil(self.retry_after_s)))}


class HttpRefusal(Exception):
    """Raised inside an endpoint to answer with a Problem that no raydiff error stands for."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def problem_of(error: BaseException) -> Problem:
    """The Problem that an exception stands for; unknown ones say nothing of their cause."""
    if isinstance(error, HttpRefusal):
        return error.problem
    if isinstance(error, RaydiffError):
        return _raydiff_problem(error)
    return Problem(
        status=500, message="The server failed while it served the request.", type="server_error"
    )


def _raydiff_problem(error: RaydiffError) -> Problem:
    message = str(error)
    if isinstance(error, UsageError):
        code = "context_length_exceeded" if isinstance(error, PromptTooLong) else None
        return Problem(status=400, message=message, param=error.param, code=code)
    if isinstance(error, ModelError):
        return Problem(status=404, message=message, param="model", code="model_not_found")
    if isinstance(error, Overloaded):
        return Problem(
            status=429,
            message=message,
            type="rate_limit_error",
            code="overloaded",
            retry_after_s=error.retry_after_s,
        )
    if isinstance(error, DeadlineExceeded):
        return Problem(status=408, message=message, type="timeout_error", code="deadline_exceeded")
    if isinstance(error, ClusterError | RequestCancelled):
        return Problem(
            status=503,
            message=message,
            type="service_unavailable_error",
            code="unavailable",
            retry_after_s=1.0,
        )
    return Problem(status=500, message=message, type="server_error")
