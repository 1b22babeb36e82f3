"""The decoding settings that an evaluation compares: given by flags or a file, or a sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raydiff.decoding import CHOICES, Decoding
from raydiff.errors import DecodingError, InputError, UsageError, invalid
from raydiff.spec import ModelSpec

_SWEEP_THRESHOLDS = (0.5, 0.7, 0.9)
_MOST_STEPS = 6
"""Step counts of the sweep: the model's largest and its halves."""
DEFAULT = "default"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A way to decode, named."""

    name: str
    decoding: Decoding


def parse_setting(text: str) -> Setting:
    """The setting that `--setting` gives: "policy=threshold,threshold=0.9", named by itself, or
    "NAME: policy=threshold,..."; "default" is the model's own.

    Raises:
        DecodingError: a name or a value is impossible.
    """
    name, pairs = text.strip(), text.strip()
    if ":" in text.partition("=")[0]:
        name, pairs = (part.strip() for part in text.split(":", 1))
    if pairs == DEFAULT:
        return Setting(name=name, decoding=Decoding())
    decoding = Decoding.from_mapping(dict(map(_pair, pairs.split(","))))
    return Setting(name=name, decoding=decoding)


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise DecodingError(invalid("setting", expected="NAME=VALUE[,NAME=VALUE...]", got=text))
    choice = CHOICES.get(name)
    if choice is None or choice.kind is str:
        return name, value.strip()
    try:
        return name, json.loads(value)
    except ValueError as error:
        message = invalid(name, expected=choice.expected(), got=value.strip())
        raise DecodingError(message, name) from error


def read_settings(path: str) -> list[Setting]:
    """The settings of a JSON file: an object of decoding settings by name.

    Raises:
        InputError: the file is not of that form.
        DecodingError: a setting or a value is impossible.
    """
    try:
        held = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"settings: {path} cannot be read as JSON: {error}.", "settings"
        ) from error
    if not isinstance(held, dict) or not all(isinstance(v, dict) for v in held.values()):
        expected = 'an object like {"fast": {"policy": "threshold", "threshold": 0.9}}'
        raise InputError(f"settings: {path}: expected {expected}.", "settings")
    return [
        Setting(name=name, decoding=Decoding.from_mapping(values)) for name, values in held.items()
    ]


def default_sweep(spec: ModelSpec) -> list[Setting]:
    """The model's own decoding, fewer steps, and thresholds where the model has that policy."""
    return [Setting(name=name, decoding=decoding) for name, decoding in _sweep(spec)]


def _sweep(spec: ModelSpec) -> Iterator[tuple[str, Decoding]]:
    yield DEFAULT, Decoding()
    usual = spec.resolve(Decoding())
    most = (usual.block_length or 1) if spec.noise == "absorbing" else (usual.steps or 1)
    for steps in [most >> i for i in range(_MOST_STEPS) if most >> i]:
        if spec.noise == "absorbing":
            yield f"steps={steps}", Decoding(policy="quota", steps=steps)
        else:
            yield f"steps={steps}", Decoding(steps=steps)
    if "threshold" in spec.policies():
        for threshold in _SWEEP_THRESHOLDS:
            yield f"threshold={threshold:g}", Decoding(policy="threshold", threshold=threshold)


def completed(setting: Setting, base: Decoding) -> Setting:
    """The setting, with what it leaves open taken from `base`.

    Raises:
        DecodingError: the two contradict each other.
    """
    usual = Decoding()
    given = {**_changed(base, usual), **_changed(setting.decoding, usual)}
    return Setting(name=setting.name, decoding=Decoding.from_mapping(given))


def _changed(decoding: Decoding, usual: Decoding) -> dict[str, Any]:
    given = decoding.given()
    return {name: value for name, value in given.items() if value != getattr(usual, name)}


def resolve_settings(settings: Sequence[Setting], spec: ModelSpec) -> list[Setting]:
    """The settings as the model runs them, those that come to the same only once.

    Raises:
        DecodingError: the model cannot decode that way.
        UsageError: a name is used twice.
    """
    resolved: dict[Decoding, Setting] = {}
    for setting in settings:
        try:
            decoding = spec.resolve(setting.decoding)
        except DecodingError as error:
            raise DecodingError(f"setting {setting.name!r}: {error}", error.param) from error
        resolved.setdefault(decoding, Setting(name=setting.name, decoding=decoding))
    names = [setting.name for setting in resolved.values()]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(invalid("setting", expected="names that differ", got=name), "setting")
    return list(resolved.values())
