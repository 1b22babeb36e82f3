"""The OpenAPI document is true: schemathesis sends what it allows and what it forbids."""

from __future__ import annotations

import os
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

from raydiff.serve.api import TextApi

EXAMPLES = int(os.environ.get("RAYDIFF_SCHEMATHESIS_EXAMPLES", "10"))
"""Of each operation and kind; the drill `schemathesis` makes 500."""
PATHS = (
    ("/v1/completions", "POST"),
    ("/v1/chat/completions", "POST"),
    ("/v1/models", "GET"),
    ("/v1/models/{name}", "GET"),
    ("/tokenize", "POST"),
    ("/detokenize", "POST"),
    ("/health", "GET"),
)


@pytest.fixture(scope="module")
def document(shared_api: TextApi) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", shared_api.app())


def test_every_operation_of_the_document_is_tried(document: Any) -> None:
    assert sorted(
        (op.ok().path, op.ok().method.upper()) for op in document.get_all_operations()
    ) == sorted(PATHS)


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("path", "method"), PATHS)
def test_answers_are_as_the_document_says_and_what_it_forbids_is_refused(
    document: Any, path: str, method: str, mode: schemathesis.GenerationMode
) -> None:
    """Not checked is that all it allows is served: how long a prompt may be is no JSON schema."""
    operation = document[path][method]

    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    def send(case: schemathesis.Case) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    send()
