"""Is the model that an application serves the one that a job asks for, or only of the same name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from raydiff.config import ModelSettings
from raydiff.errors import ClusterError
from raydiff.serve.versions import checkpoint_digest

_CAPACITY = {"threads"}
"""Settings of an engine that change no text and belong to whoever runs the application."""


def require_alike(asked: ModelSettings, found: Mapping[str, Any] | None, app_name: str) -> None:
    """Refuse an application whose model differs from `asked` in what the text depends on.

    That is the checkpoint, by its contents, and of dtype and engine settings those that were asked
    for; what was left open is taken as the application has it. `found` is what its replicas were
    configured with.

    Raises:
        ClusterError: the models differ; the message names the difference.
    """
    difference = _difference(asked, found or {})
    if difference:
        raise ClusterError(
            f"Application {app_name!r} of this cluster serves another model as "
            f"{asked.served_name!r}: {difference}. Ask for what it serves, delete it "
            "(`serve shutdown`), or set RAY_ADDRESS=local to use a cluster of your own."
        )


def _difference(asked: ModelSettings, found: Mapping[str, Any]) -> str | None:
    if not found:
        return None  # an application of another version, which does not say
    running = ModelSettings.model_validate(found["settings"])
    if not _same_place(asked.model, running.model):
        digest = checkpoint_digest(asked.model)
        if not digest or digest != found["checkpoint"]:
            return f"model {running.model!r}, not {asked.model!r}"
    elif checkpoint_digest(asked.model) != found["checkpoint"]:
        return f"the contents of {asked.model!r} have changed since it was loaded"
    if "dtype" in asked.model_fields_set and asked.dtype != running.dtype:
        return f"dtype {running.dtype!r}, not {asked.dtype!r}"
    for name in sorted(asked.engine.model_fields_set - _CAPACITY):
        ours, theirs = getattr(asked.engine, name), getattr(running.engine, name)
        if ours != theirs:
            return f"engine.{name} {theirs!r}, not {ours!r}"
    return None


def _same_place(one: str, other: str) -> bool:
    both_paths = os.path.isdir(one) and os.path.isdir(other)
    return one == other or (both_paths and os.path.realpath(one) == os.path.realpath(other))
