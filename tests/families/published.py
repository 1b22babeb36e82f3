"""Directories that hold what a published checkpoint says of itself, without its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

from raydiff.families import family_of, load_spec
from raydiff.spec import ModelSpec


def read(
    folder: Path,
    config: Mapping[str, Any],
    generation: Mapping[str, Any] | None = None,
    added_tokens: Mapping[str, int] | None = None,
    special_tokens: Mapping[str, str] | None = None,
) -> ModelSpec:
    """The spec of a checkpoint with these files."""
    files = {
        "config": config,
        "generation_config": generation,
        "added_tokens": added_tokens,
        "special_tokens_map": special_tokens,
    }
    for name, content in files.items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return load_spec(folder)


def stock(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the transformers class that holds the weights."""
    return family_of(config, "config.json").stock_config(config)


def render(spec: ModelSpec, messages: Sequence[Mapping[str, str]]) -> str:
    """The prompt of a chat, in the engine's kind of template."""
    assert spec.chat_template is not None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(spec.chat_template)
    return template.render(messages=list(messages), add_generation_prompt=True)


USER = {"role": "user", "content": "Hi"}
ANSWER = {"role": "assistant", "content": "Hello"}
SYSTEM = {"role": "system", "content": "Be kind"}
