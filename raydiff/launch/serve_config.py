"""Reads a Serve config as `serve deploy` and KubeRay take it, and checks every key of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.schema import ServeDeploySchema

from raydiff.config import AppSettings, Settings, deployment_name
from raydiff.errors import ModelError, UsageError, invalid
from raydiff.launch.strict import joined, require_keys, require_known_keys
from raydiff.serve.access import check_binding
from raydiff.serve.app import GATEWAY, LIMITER, build_app, served_models

BUILDER = "raydiff.serve.app:build_app"
_BUILDERS = (BUILDER, BUILDER.replace(":", "."))


def read_serve_config(path: Path) -> dict[str, Any]:
    """The Serve config in a YAML file, or in the `serveConfigV2` of a RayService, checked.

    Raises:
        UsageError: the file cannot be read, or a key or value in it is wrong; the message gives
            its whole path.
        ModelError: a model is unknown or its checkpoint malformed.
    """
    config = _of_manifest(_loaded(path), path)
    try:
        check_serve_config(config)
    except UsageError as error:
        raise UsageError(f"{path}: {error}", error.param) from None
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    return config


def check_serve_config(config: Mapping[str, Any]) -> None:
    """Check a whole Serve config, our applications' arguments included.

    Raises:
        UsageError: a key is unknown, a value is wrong, or settings contradict each other.
        ModelError: a model is unknown or its checkpoint malformed.
    """
    require_known_keys(config, ServeDeploySchema)
    checked = _validated(ServeDeploySchema, config, "")
    assert isinstance(checked, ServeDeploySchema)
    host = None if checked.proxy_location == "Disabled" else checked.http_options.host
    for index, application in enumerate(config["applications"]):
        if application["import_path"] in _BUILDERS:
            _check_ours(application, f"applications.{index}", host)


def _check_ours(application: Mapping[str, Any], path: str, host: str | None) -> None:
    args = application.get("args") or {}
    place = joined(path, "args")
    require_known_keys(args, AppSettings, place)
    settings = _validated(AppSettings, args, place)
    assert isinstance(settings, AppSettings)
    try:
        build_app(settings)
        check_binding(settings.access, host)
    except UsageError as error:
        raise UsageError(f"{place}: {error}", error.param) from None
    names = [LIMITER] if settings.access.keys_file is not None else []
    names += [deployment_name(model.served_name) for model in served_models(settings)]
    for index, override in enumerate(application.get("deployments") or ()):
        where = f"{path}.deployments.{index}.name"
        require_keys({override["name"]: None}, [GATEWAY, *names], where)


def _validated(kind: type[BaseModel], values: Mapping[str, Any], path: str) -> BaseModel:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = path
        for part in first["loc"]:
            name = joined(name, part)
        known = "" if issubclass(kind, Settings) else " (Serve's schema)"
        message = f"{name or 'config'}: {first['msg']}, got {first['input']!r}{known}."
        raise UsageError(message, name) from None


def _loaded(path: Path) -> dict[str, Any]:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: cannot be read: {' '.join(str(error).split())}.") from None
    if not isinstance(value, dict):
        expected = "a Serve config with applications"
        raise UsageError(invalid(str(path), expected=expected, got=type(value).__name__))
    return value


def _of_manifest(value: dict[str, Any], path: Path) -> dict[str, Any]:
    """What KubeRay hands to Serve, where the file is a manifest."""
    if value.get("kind") != "RayService":
        return value
    text = (value.get("spec") or {}).get("serveConfigV2")
    config = yaml.safe_load(text) if isinstance(text, str) else None
    if not isinstance(config, dict):
        expected = "a Serve config as a text"
        raise UsageError(invalid(f"{path}: spec.serveConfigV2", expected=expected, got=text))
    return config
