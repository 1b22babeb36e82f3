"""`raydiff models`: what the bundled models, or given checkpoints, are."""

from __future__ import annotations

import argparse
import json
from typing import Any

from raydiff.families import BUNDLED, load_spec, model_path
from raydiff.spec import ModelSpec


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("models", help="list the models and what they are")
    parser.add_argument(
        "model", nargs="*", help="bundled names or checkpoint directories (all bundled ones)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print a description of each model."""
    described = [describe(name) for name in args.model or sorted(BUNDLED)]
    if args.json:
        print(json.dumps({"models": described}))
        return 0
    for description in described:
        print(description["name"])
        for key, value in description.items():
            if key != "name":
                print(f"  {key.replace('_', ' '):<20}{_shown(value)}")
    return 0


def describe(path_or_name: str) -> dict[str, Any]:
    """What one model is, from its configuration and the headers of its weights.

    Raises:
        ModelError: the checkpoint is missing or malformed.
    """
    spec = load_spec(path_or_name)
    parameters, dtypes = _weights(spec)
    defaults = spec.defaults
    return {
        "name": spec.name,
        "path": str(model_path(path_or_name)),
        "family": spec.family,
        "noise": spec.noise,
        "attention": spec.attention,
        "parameters": parameters,
        "dtype": ", ".join(dtypes),
        "vocabulary": spec.vocab_size,
        "max_prompt_tokens": spec.max_prompt_tokens,
        "max_new_tokens": spec.max_new_tokens,
        "block_length": spec.block_length,
        "cache": spec.cache,
        "cache_bytes": cache_bytes(spec, bytes_per_value=4),
        "default_policy": defaults.policy,
        "default_steps": defaults.steps,
        "default_threshold": defaults.threshold,
    }


def cache_bytes(spec: ModelSpec, *, bytes_per_value: int) -> int:
    """Bytes of keys and values that one sequence of the greatest length caches."""
    if spec.cache == "none":
        return 0
    positions = spec.max_prompt_tokens + spec.max_new_tokens
    return positions * spec.cache_bytes_per_position(bytes_per_value)


def _weights(spec: ModelSpec) -> tuple[int, list[str]]:
    """Number of parameters and their types, read from the safetensors headers alone."""
    count = 0
    dtypes: set[str] = set()
    for path in sorted(model_path(spec.name).glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        for key, entry in header.items():
            if key != "__metadata__":
                size = 1
                for dimension in entry["shape"]:
                    size *= dimension
                count += size
                dtypes.add(entry["dtype"])
    return count, sorted(dtypes)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
