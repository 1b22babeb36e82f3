"""The OpenAPI document is true: schemathesis sends what it allows and what it forbids."""

from __future__ import annotations

import os
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from raydiff.batches.store import BatchStore
from raydiff.config import BatchSettings
from raydiff.serve.access import OpenAccess
from raydiff.serve.api import TextApi
from raydiff.serve.batch_routes import BatchModel, BatchRoutes
from raydiff.serve.file_routes import FileRoutes
from raydiff.serve.served import ServedModel
from tests.serve.conftest import MAX_BODY_BYTES, MODEL

EXAMPLES = int(os.environ.get("RAYDIFF_SCHEMATHESIS_EXAMPLES", "8"))
"""Of each operation and kind; the drill `schemathesis` makes 500."""
PATHS = (
    ("/v1/completions", "POST"),
    ("/v1/chat/completions", "POST"),
    ("/v1/models", "GET"),
    ("/v1/models/{name}", "GET"),
    ("/tokenize", "POST"),
    ("/detokenize", "POST"),
    ("/health", "GET"),
    ("/v1/files", "GET"),
    ("/v1/files", "POST"),
    ("/v1/files/{id}", "GET"),
    ("/v1/files/{id}", "DELETE"),
    ("/v1/files/{id}/content", "GET"),
    ("/v1/batches", "GET"),
    ("/v1/batches", "POST"),
    ("/v1/batches/{id}", "GET"),
    ("/v1/batches/{id}/cancel", "POST"),
)


class _Nobody:
    """Looks after no batch."""

    def nudge(self) -> None:
        return None


@pytest.fixture(scope="module")
def document(shared_model: ServedModel, tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = BatchStore(BatchSettings(location=str(tmp_path_factory.mktemp("batches"))))
    batches = BatchRoutes(
        store=store,
        access=OpenAccess(),
        attendant=_Nobody(),
        models={MODEL: BatchModel(checkpoint=MODEL, fingerprint="")},
        app_name="test",
        max_body_bytes=MAX_BODY_BYTES,
    )
    api = TextApi(
        {MODEL: shared_model},
        request_timeout_s=60,
        max_body_bytes=MAX_BODY_BYTES,
        groups=[FileRoutes(store=store, access=OpenAccess()), batches],
    )
    return schemathesis.openapi.from_asgi("/openapi.json", api.app())


def test_every_operation_of_the_document_is_tried(document: Any) -> None:
    assert sorted(
        (op.ok().path, op.ok().method.upper()) for op in document.get_all_operations()
    ) == sorted(PATHS)


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("path", "method"), PATHS)
def test_answers_are_as_the_document_says_and_what_it_forbids_is_refused(
    document: Any, path: str, method: str, mode: schemathesis.GenerationMode
) -> None:
    """Not checked is that all it allows is served: how long a prompt may be is no JSON schema.
    Nor are types of forms, whose values all are texts."""
    operation = document[path][method]
    unchecked = [positive_data_acceptance]
    if (path, method) == ("/v1/files", "POST"):
        unchecked.append(negative_data_rejection)

    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    def send(case: schemathesis.Case) -> None:
        case.call_and_validate(excluded_checks=unchecked)

    send()
