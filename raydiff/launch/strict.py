"""Keys that no schema knows: pydantic models of Ray Serve drop them without a word."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel
from ray.runtime_env import RuntimeEnv

from raydiff.errors import UsageError

_RUNTIME_ENV = "runtime_env"


def require_known_keys(value: Any, schema: type[BaseModel], path: str = "") -> None:
    """Refuse a key that `schema`, or a schema within it, has no field for.

    Raises:
        UsageError: there is one; `param` is its whole path.
    """
    if not isinstance(value, Mapping):
        return
    require_keys(value, schema.model_fields, path)
    for name, inner in value.items():
        place = joined(path, name)
        if name == _RUNTIME_ENV and isinstance(inner, Mapping):
            known = [field for field in RuntimeEnv.known_fields if not field.startswith("_")]
            require_keys(inner, known, place)
            continue
        for nested in _schemas(schema.model_fields[name].annotation):
            if isinstance(inner, list):
                for index, item in enumerate(inner):
                    require_known_keys(item, nested, f"{place}.{index}")
            else:
                require_known_keys(inner, nested, place)


def require_keys(value: Mapping[Any, Any], known: Collection[str], path: str) -> None:
    """Refuse a key that is not `known`.

    Raises:
        UsageError: there is one.
    """
    for name in value:
        if name in known:
            continue
        near = get_close_matches(str(name), known, n=1, cutoff=0.5)
        remedy = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(sorted(known))}."
        raise UsageError(f"{joined(path, name)}: unknown key. {remedy}", joined(path, name))


def joined(path: str, name: object) -> str:
    """The path of what stands under `name`."""
    return f"{path}.{name}" if path else str(name)


def _schemas(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _schemas(argument)
