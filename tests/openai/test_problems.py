"""Which status and body an error becomes."""

from __future__ import annotations

import pytest

from raydiff.errors import (
    ClusterError,
    DeadlineExceeded,
    DecodingError,
    EngineError,
    ModelError,
    OutOfMemory,
    Overloaded,
    PromptTooLong,
    RequestCancelled,
)
from raydiff.openai.problems import problem_of


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DecodingError("steps: no.", "steps"), 400, None),
        (PromptTooLong("prompt: no.", "prompt"), 400, "context_length_exceeded"),
        (ModelError("model: no."), 404, "model_not_found"),
        (DeadlineExceeded("late."), 408, "deadline_exceeded"),
        (Overloaded("full.", 2.2), 429, "overloaded"),
        (EngineError("broken."), 500, None),
        (OutOfMemory("large."), 500, None),
        (ClusterError("gone."), 503, "unavailable"),
        (RequestCancelled("gone."), 503, "unavailable"),
    ],
)
def test_every_error_of_the_tree_has_its_status(
    error: Exception, status: int, code: str | None
) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.code) == (status, code)
    assert problem.body()["error"]["message"] == str(error)


def test_retry_after_is_in_whole_seconds_and_never_zero() -> None:
    assert problem_of(Overloaded("full.", 2.2)).headers() == {"Retry-After": "3"}
    assert problem_of(Overloaded("full.", 0.0)).headers() == {"Retry-After": "1"}


def test_an_unknown_error_does_not_tell_its_cause() -> None:
    problem = problem_of(KeyError("a prompt"))
    assert problem.status == 500
    assert "a prompt" not in problem.message
