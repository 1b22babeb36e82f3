"""A changed config restarts the deployments it changes and no others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from ray.serve._private.build_app import build_app as serve_build_app
from ray.serve._private.config import DeploymentConfig

from raydiff.config import AppSettings, EngineSettings, ModelSettings
from raydiff.serve.app import build_app

pytestmark = pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field")

SIM = ModelSettings(name="sim", model="simulated:8x16=1s")
TINY = ModelSettings(name="tiny", model="random:tiny-sdar")


def deployed(settings: AppSettings) -> dict[str, DeploymentConfig]:
    """The options that the controller gets, by deployment, after Serve set versions of its own."""
    built = serve_build_app(build_app(settings), name="app", default_runtime_env={})
    configs = {}
    for deployment in built.deployments:
        config = deployment._deployment_config
        config.version = "of the application as a whole"
        configs[deployment.name] = DeploymentConfig.from_proto_bytes(config.to_proto_bytes())
    return configs


def versions(*models: ModelSettings, **fields: Any) -> dict[str, str]:
    configs = deployed(AppSettings(models=models, **fields))
    return {name: config.version for name, config in configs.items()}


def test_a_model_that_comes_or_goes_leaves_the_others_alone() -> None:
    one, both = versions(SIM), versions(SIM, TINY)
    assert one["model-sim"] == both["model-sim"]
    assert one["gateway"] != both["gateway"]


def test_settings_of_the_app_restart_no_model() -> None:
    before, after = versions(SIM), versions(SIM, request_timeout_s=5)
    assert before["model-sim"] == after["model-sim"]
    assert before["gateway"] != after["gateway"]


@pytest.mark.parametrize(
    "change",
    [{"max_replicas": 4}, {"documents_per_call": 2}, {"stall_s": 3}, {"update_surge_percent": 50}],
)
def test_what_running_replicas_can_take_on_restarts_none(change: dict[str, Any]) -> None:
    changed = SIM.model_copy(update=change)
    assert versions(SIM)["model-sim"] == versions(changed)["model-sim"]
    settings = deployed(AppSettings(models=(changed,)))["model-sim"].user_config["settings"]
    assert {name: settings[name] for name in change} == change


@pytest.mark.parametrize(
    "change",
    [{"engine": EngineSettings(max_rows=3)}, {"dtype": "bf16"}, {"model": "simulated:8x16=2s"}],
)
def test_what_makes_another_engine_restarts_the_model(change: dict[str, Any]) -> None:
    changed = SIM.model_copy(update=change)
    assert versions(SIM)["model-sim"] != versions(changed)["model-sim"]


def test_new_weights_in_the_same_place_restart_the_model(checkpoint: Path, tmp_path: Path) -> None:
    place = shutil.copytree(checkpoint, tmp_path / "model")
    model = ModelSettings(name="m", model=str(place))
    before = versions(model)
    assert versions(model) == before
    with (place / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    after = versions(model)
    assert all(after[name] != before[name] for name in before)


def test_gateways_are_replaced_before_they_stop() -> None:
    configs = deployed(AppSettings(models=(SIM,), gateways=3, drain_s=7))
    assert (configs["gateway"].num_replicas, configs["gateway"].max_surge_percent) == (3, 100)
    assert {config.graceful_shutdown_timeout_s for config in configs.values()} == {7}


def test_health_checks_find_a_stalled_or_silent_replica_within_30_s() -> None:
    """Three checks in a row must fail; they begin 1.1 periods apart at most."""
    config = deployed(AppSettings(models=(SIM,)))["model-sim"]
    looks_s = 3 * 1.0
    stalled_s = SIM.stall_s + 3 * 1.1 * config.health_check_period_s + looks_s
    silent_s = 1.1 * config.health_check_period_s + 3 * config.health_check_timeout_s + looks_s
    assert (stalled_s < 30, silent_s < 30) == (True, True)
