"""The example Serve config, held to Serve's schema and to ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from ray.serve._private.build_app import build_app as serve_build_app
from ray.serve.schema import (
    HTTPOptionsSchema,
    ServeApplicationSchema,
    ServeDeploySchema,
)

from raydiff.config import APP_NAME, AppSettings
from raydiff.serve import app as app_module

EXAMPLE = Path(__file__).parents[2] / "deploy" / "serve.yaml"


@pytest.fixture
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    return loaded


def unknown_keys(values: dict[str, Any], schema: type[BaseModel]) -> set[str]:
    """Serve's schemas let typing errors pass; this finds them."""
    return set(values) - set(schema.model_fields)


def test_serve_accepts_it_and_knows_every_key(config: dict[str, Any]) -> None:
    ServeDeploySchema.model_validate(config)
    assert unknown_keys(config, ServeDeploySchema) == set()
    assert unknown_keys(config["http_options"], HTTPOptionsSchema) == set()
    for application in config["applications"]:
        assert unknown_keys(application, ServeApplicationSchema) == set()


def test_it_listens_on_the_loopback_interface(config: dict[str, Any]) -> None:
    assert config["http_options"]["host"] == "127.0.0.1"


def test_its_application_is_the_one_that_jobs_look_for(config: dict[str, Any]) -> None:
    (application,) = config["applications"]
    module, _, name = application["import_path"].partition(":")
    assert application["name"] == APP_NAME
    assert module == app_module.__name__
    assert getattr(app_module, name) is app_module.build_app


def test_its_arguments_build_the_application(
    config: dict[str, Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (application,) = config["applications"]
    args = AppSettings.model_validate(application["args"])
    models = tuple(m.model_copy(update={"model": str(checkpoint)}) for m in args.models)
    built = app_module.build_app(args.model_copy(update={"models": models}))
    names = {d.name for d in serve_build_app(built, name=APP_NAME).deployments}
    assert names == {"gateway", "model-summarizer"}
