"""What makes a run this run beside its input: columns, model, decoding, prompt, seed, shard size.

Two runs with one fingerprint write the same rows, so one may continue the other. Anything else
in the same directory is refused, with the difference named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from raydiff.config import CorpusSettings
from raydiff.corpus.inputs import ID_COLUMNS, Columns
from raydiff.errors import RunConflict
from raydiff.families import load_spec, model_path, without_files
from raydiff.request import Decoding
from raydiff.text import PromptStyle

_WHOLE_BYTES = 256 * 2**20
_EDGE_BYTES = 2**20


def make_fingerprint(
    settings: CorpusSettings,
    decoding: Decoding,
    style: PromptStyle,
    model_digest: str,
    columns: Columns,
) -> dict[str, Any]:
    """The fingerprint as JSON values. `decoding` is resolved, so defaults count by value.

    The input files are not in it: the plan has them in a table of their own.
    """
    return {
        "columns": _columns(columns),
        "model": model_digest,
        "decoding": {name: plain(value) for name, value in asdict(decoding).items()},
        "prompt": _prompt(settings, style),
        "documents": _documents(settings),
        "seed": settings.seed,
        "shard_rows": settings.shard_rows,
    }


def asked_columns(settings: CorpusSettings, planned: Columns) -> Columns:
    """The columns that settings ask for, without a look at the input: where they leave the id
    column open, and one was chosen by its name, it is that one."""
    chosen = planned.id if planned.id in ID_COLUMNS else None
    return Columns(
        text=settings.text_column, id=settings.id_column or chosen, passed=settings.pass_columns
    )


def _prompt(settings: CorpusSettings, style: PromptStyle) -> dict[str, Any]:
    task = {"task": settings.task.kind, "labels": list(settings.task.labels)}
    return {**task, **asdict(style), "examples": [list(pair) for pair in style.examples]}


def _documents(settings: CorpusSettings) -> dict[str, Any]:
    return {
        name: getattr(settings, name)
        for name in ("on_long", "on_empty", "max_document_tokens", "merge_depth", "dedupe")
    }


def _columns(columns: Columns) -> dict[str, Any]:
    return {"text": columns.text, "id": columns.id, "passed": list(columns.passed)}


def plain(value: object) -> object:
    """A field of settings as a JSON value."""
    return list(value) if isinstance(value, tuple) else value


def model_digest(path_or_name: str) -> str:
    """A hash over the names and contents of a checkpoint's files.

    Of files above 256 MiB it takes the size, the first and the last MiB. Random weights, and
    simulated models, follow from their name.

    Raises:
        ModelError: there is no such checkpoint.
    """
    digest = blake2b(digest_size=16)
    if without_files(path_or_name):
        load_spec(path_or_name)
        return path_or_name
    path = model_path(path_or_name)
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        relative = file.relative_to(path)
        if relative.suffix == ".md" or any(part.startswith(".") for part in relative.parts):
            continue
        digest.update(f"{relative}\0{file.stat().st_size}\0".encode())
        _update(digest, file)
    return digest.hexdigest()


def _update(digest: Any, file: Path) -> None:
    size = file.stat().st_size
    with file.open("rb") as stream:
        if size <= _WHOLE_BYTES:
            while block := stream.read(_EDGE_BYTES):
                digest.update(block)
            return
        digest.update(stream.read(_EDGE_BYTES))
        stream.seek(size - _EDGE_BYTES)
        digest.update(stream.read())


def require_same(saved: Mapping[str, Any], current: Mapping[str, Any], output: str) -> None:
    """Refuse to continue a run under another fingerprint.

    Raises:
        RunConflict: they differ; the message says in what.
    """
    differences = describe_differences(saved, current)
    if differences:
        raise RunConflict(
            f"output: {output} holds another run: {'; '.join(differences)}. "
            "Choose another output directory, or repeat that run's input and options.",
            "output",
        )


def describe_differences(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """One phrase for each thing in which two fingerprints differ."""
    phrases: list[str] = []
    for key in sorted({*saved, *current}):
        old, new = saved.get(key), current.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            phrases += [
                f"{key}.{name} was {old.get(name)!r}, now {new.get(name)!r}"
                for name in sorted({*old, *new})
                if old.get(name) != new.get(name)
            ]
        else:
            phrases.append(f"{key} was {old!r}, now {new!r}")
    return phrases
