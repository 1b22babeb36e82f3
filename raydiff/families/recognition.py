"""From a name or directory to its family and spec, by `config.json` alone; loads no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from raydiff.errors import DecodingError, ModelError, invalid
from raydiff.families import (
    a2d,
    bert,
    diffusion_gemma,
    dream,
    embedding,
    fast_dllm,
    llada,
    llada2,
    modernbert,
    roberta,
    sdar,
    summarizer,
)
from raydiff.families.family import Config, Family, Source
from raydiff.families.presets import PREFIX, is_random, random_source
from raydiff.simulated import PREFIX as SIMULATED
from raydiff.simulated import is_simulated, simulated_model, simulated_spec
from raydiff.spec import ModelSpec

MODELS = Path(__file__).parent.parent / "models"
BUNDLED = {
    name: MODELS / name
    for name in (
        "summarizer",
        "tiny-masked",
        "tiny-discrete-flow",
        "tiny-uniform",
        "tiny-diffuseq",
        "tiny-diffusion-lm",
        "tiny-flow",
    )
}
FAMILIES: tuple[Family, ...] = (
    summarizer.FAMILY,
    embedding.FAMILY,
    bert.FAMILY,
    roberta.FAMILY,
    llada.FAMILY,
    dream.FAMILY,
    sdar.FAMILY,
    fast_dllm.FAMILY,
    llada2.FAMILY,
    a2d.FAMILY,
    diffusion_gemma.FAMILY,
    modernbert.FAMILY,
)
"""In the order in which they are asked; the first that recognises a config has it."""


def without_files(path_or_name: str | Path) -> bool:
    """Whether a name describes its model by itself: random weights, or the simulated denoiser."""
    return is_random(path_or_name) or is_simulated(path_or_name)


def model_path(path_or_name: str | Path) -> Path:
    """The checkpoint directory behind a bundled name or a path.

    Raises:
        ModelError: there is no such bundled model and no such directory, or the weights are
            random.
    """
    if is_random(path_or_name):
        raise ModelError(f"{path_or_name}: has random weights, not a directory of its own.")
    if is_simulated(path_or_name):
        raise ModelError(f"{path_or_name}: is simulated: it has no weights and no directory.")
    bundled = BUNDLED.get(str(path_or_name))
    path = bundled if bundled is not None else Path(path_or_name)
    if not (path / "config.json").is_file():
        names = ", ".join(sorted(BUNDLED))
        raise ModelError(
            invalid(
                "model",
                expected=f"a bundled name ({names}), a directory with config.json or "
                f"{PREFIX} and a preset's name, or {SIMULATED} and what to simulate",
                got=str(path_or_name),
            )
        )
    return path


def family_of(config: Config, where: str) -> Family:
    """The family that a config belongs to.

    Raises:
        ModelError: none recognises it; the message lists them.
    """
    family = next((f for f in FAMILIES if f.recognises(config)), None)
    if family is None:
        known = "; ".join(f"{f.name} ({f.title})" for f in FAMILIES)
        got = {key: config.get(key) for key in ("model_type", "architectures")}
        raise ModelError(invalid(where, expected=f"a model of a known family: {known}", got=got))
    return family


def load_source(path_or_name: str | Path) -> Source:
    """Read what a checkpoint, or a preset, says of itself, without its weights.

    Raises:
        ModelError: it is missing or its files are unreadable.
    """
    if is_random(path_or_name):
        return random_source(str(path_or_name))
    path = model_path(path_or_name)
    tokenizer = _read_if_there(path / "tokenizer_config.json")
    return Source(
        name=str(path_or_name),
        config=_read_json(path / "config.json"),
        generation=_read_if_there(path / "generation_config.json"),
        special_ids=_special_ids(path, tokenizer),
        special_tokens=_special_tokens(path, tokenizer),
    )


def load_spec(path_or_name: str | Path) -> ModelSpec:
    """Read a checkpoint's `config.json` into a ModelSpec.

    Raises:
        ModelError: the directory is missing, its config is unreadable or its family unknown.
    """
    if is_simulated(path_or_name):
        return simulated_spec(simulated_model(path_or_name))
    source = load_source(path_or_name)
    where = f"{source.name}/config.json"
    family = family_of(source.config, where)
    try:
        return family.spec(source)
    except (KeyError, TypeError, ValueError, DecodingError) as error:
        raise ModelError(
            f"{where}: cannot be read as a model of family {family.name!r}: {error!r}."
        ) from error


def _special_ids(path: Path, tokenizer: Config) -> dict[str, int]:
    """Ids of added tokens. The large `tokenizer.json` is read only where the small file of its
    settings lists none.
    """
    ids = dict(_read_if_there(path / "added_tokens.json"))
    entries = tokenizer.get("added_tokens_decoder") or {}
    try:
        ids.update({entry["content"]: int(number) for number, entry in entries.items()})
        if not entries:
            added = _read_if_there(path / "tokenizer.json").get("added_tokens") or ()
            ids.update({entry["content"]: int(entry["id"]) for entry in added})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"{path}: expected added tokens with content and id in its tokenizer files"
        raise ModelError(f"{message}: {error!r}.") from error
    return ids


def _special_tokens(path: Path, tokenizer: Config) -> dict[str, str]:
    """Special tokens by role; `tokenizer_config.json` has the last word."""
    said = {**_read_if_there(path / "special_tokens_map.json"), **tokenizer}
    contents = {role: t.get("content") if isinstance(t, dict) else t for role, t in said.items()}
    return {
        role: content
        for role, content in contents.items()
        if role.endswith("_token") and isinstance(content, str)
    }


def _read_if_there(file: Path) -> dict[str, Any]:
    return _read_json(file) if file.is_file() else {}


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: expected a JSON object: {error}.") from error
    if not isinstance(value, dict):
        raise ModelError(invalid(str(file), expected="a JSON object", got=value))
    return value
