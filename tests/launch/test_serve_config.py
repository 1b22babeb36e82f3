"""Every key of a Serve config is known, or named with its whole path."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from raydiff.errors import ModelError, UsageError
from raydiff.launch.serve_config import check_serve_config, read_serve_config

SHIPPED = Path(__file__).parents[2] / "deploy" / "serve.yaml"


def config(**application: Any) -> dict[str, Any]:
    """A config that is right unless `application` changes that."""
    ours = {"name": "raydiff", "import_path": "raydiff.serve.app:build_app", "args": {}}
    return {
        "http_options": {"host": "127.0.0.1"},
        "applications": [{**ours, **application}],
    }


def test_the_shipped_config_is_right() -> None:
    names = [app["name"] for app in read_serve_config(SHIPPED)["applications"]]
    assert names == ["raydiff"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"aplications": []}, r"aplications: unknown key\. Did you mean applications\?"),
        ({"http_options": {"prot": 1}}, r"http_options\.prot: unknown key\. Did you mean port\?"),
        ({"logging_config": {"log_levle": "INFO"}}, r"logging_config\.log_levle: .* log_level\?"),
    ],
)
def test_a_misspelt_key_of_serves_own_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_serve_config({**config(), **wrong})


@pytest.mark.parametrize(
    ("application", "path"),
    [
        ({"rout_prefix": "/"}, "rout_prefix"),
        ({"runtime_env": {"env_var": {}}}, "runtime_env.env_var"),
        ({"args": {"modls": []}}, "args.modls"),
        ({"args": {"models": [{"num_gpu": 1}]}}, "args.models.0.num_gpu"),
        ({"args": {"models": [{"engine": {"max_row": 1}}]}}, "args.models.0.engine.max_row"),
        ({"deployments": [{"name": "gateway", "num_replica": 2}]}, "deployments.0.num_replica"),
        ({"deployments": [{"name": "gatewy"}]}, "deployments.0.name.gatewy"),
        (
            {"deployments": [{"name": "gateway", "ray_actor_options": {"num_cpu": 1}}]},
            "deployments.0.ray_actor_options.num_cpu",
        ),
        (  # as it happened in KubeRay's own samples
            {
                "deployments": [
                    {"name": "gateway", "autoscaling_config": {"max_ongoing_requests": 5}}
                ]
            },
            "deployments.0.autoscaling_config.max_ongoing_requests",
        ),
    ],
)
def test_a_misspelt_key_of_an_application_is_named_with_its_path(
    application: dict[str, Any], path: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_serve_config(config(**application))
    assert caught.value.param == f"applications.0.{path}"
    assert str(caught.value).startswith(f"applications.0.{path}: unknown key.")


def test_a_wrong_value_is_named_too() -> None:
    with pytest.raises(UsageError, match=r"applications\.0\.args\.drain_s: .* got -1"):
        check_serve_config(config(args={"drain_s": -1}))
    with pytest.raises(UsageError, match=r"applications\.0\.import_path: .*Serve's schema"):
        check_serve_config(config(import_path="nothing"))


def test_settings_that_contradict_each_other_are_found_without_a_cluster() -> None:
    models = [{"min_replicas": 3, "max_replicas": 2}]
    with pytest.raises(UsageError, match="max_replicas"):
        check_serve_config(config(args={"models": models}))
    with pytest.raises(ModelError, match="no-such-model"):
        check_serve_config(config(args={"model": "no-such-model"}))


def test_an_application_of_somebody_else_has_arguments_of_its_own() -> None:
    check_serve_config(config(import_path="theirs:app", args={"anything": 1}))


def test_what_kuberay_hands_to_serve_is_checked_in_its_manifest(tmp_path: Path) -> None:
    inner = yaml.safe_dump(config(args={"modle": "x"}))
    text = "kind: RayService\nspec:\n  serveConfigV2: |\n" + textwrap.indent(inner, "    ")
    file = tmp_path / "service.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"service\.yaml: applications\.0\.args\.modle"):
        read_serve_config(file)


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "kind: RayService\nspec: {}\n"])
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"config\.yaml"):
        read_serve_config(file)
