"""The application that `build_app` describes, without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ray.serve import Application
from ray.serve._private.api import call_user_app_builder_with_args_if_necessary
from ray.serve._private.build_app import build_app as serve_build_app

from raydiff.config import (
    AccessSettings,
    AppSettings,
    AutoscalingSettings,
    EngineSettings,
    ModelSettings,
)
from raydiff.errors import ModelError, UsageError
from raydiff.serve.app import (
    build_app,
    max_ongoing_requests,
    required_cpus,
    required_gpus,
    served_models,
)


def from_command_line(**args: str) -> Application:
    """What `serve run raydiff.serve.app:build_app key=value` builds."""
    return call_user_app_builder_with_args_if_necessary(build_app, args)


def deployments(application: Application) -> dict[str, Any]:
    """Serve's own view of the application's deployments."""
    built = serve_build_app(application, name="app", default_runtime_env={})
    return {deployment.name: deployment for deployment in built.deployments}


def test_the_shorthand_makes_a_gateway_and_one_model(checkpoint: Path) -> None:
    built = deployments(from_command_line(model=str(checkpoint), replicas="2", threads="3"))
    assert set(built) == {"gateway", "model-tiny"}
    replicas = built["model-tiny"]
    autoscaling = replicas._deployment_config.autoscaling_config
    assert (autoscaling.min_replicas, autoscaling.max_replicas) == (2, 2)
    (settings,) = replicas.init_args
    assert settings.engine.threads == 3


def test_with_keys_there_is_one_limiter_and_a_changed_config_keeps_it(checkpoint: Path) -> None:
    """A key's last minute is not forgotten by an update."""
    model, access = ModelSettings(model=str(checkpoint)), AccessSettings(keys_file="keys.yaml")
    limiters = [
        deployments(build_app(AppSettings(models=(model,), access=access, gateways=n)))["limiter"]
        for n in (1, 2)
    ]
    assert {limiter._deployment_config.num_replicas for limiter in limiters} == {1}
    assert len({limiter._deployment_config._version for limiter in limiters}) == 1


def test_an_unknown_argument_is_refused(checkpoint: Path) -> None:
    with pytest.raises(ValidationError, match="modle"):
        from_command_line(modle=str(checkpoint))


def test_an_unknown_model_is_refused_before_anything_starts() -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        from_command_line(model="no-such-model")


def test_each_model_has_its_own_resources_and_bounds(checkpoint: Path) -> None:
    models = (
        ModelSettings(
            name="a",
            model=str(checkpoint),
            device="cuda",
            num_gpus=0.5,
            num_cpus=2,
            accelerator_type="H100",
            min_replicas=1,
            max_replicas=4,
        ),
        ModelSettings(name="b", model=str(checkpoint), min_replicas=0, max_replicas=2),
    )
    built = deployments(build_app(AppSettings(models=models)))
    assert set(built) == {"gateway", "model-a", "model-b"}
    options = built["model-a"].ray_actor_options
    assert (options["num_cpus"], options["num_gpus"]) == (2, 0.5)
    assert options["accelerator_type"] == "H100"
    assert built["model-a"]._deployment_config.autoscaling_config.max_replicas == 4
    assert built["model-b"]._deployment_config.autoscaling_config.min_replicas == 0
    assert built["gateway"].ray_actor_options["num_cpus"] < 1


def test_calls_that_carry_more_documents_make_a_smaller_target() -> None:
    def target(documents: int) -> float:
        model = ModelSettings(documents_per_call=documents, engine=EngineSettings(max_rows=64))
        return model.target_ongoing_requests

    assert (target(1), target(16), target(64), target(1000)) == (64, 4, 1, 1)


def test_serves_own_limits_lie_above_what_the_engine_takes(checkpoint: Path) -> None:
    model = ModelSettings(model=str(checkpoint))
    built = deployments(build_app(AppSettings(models=(model,))))
    per_lane = model.engine.max_queued + model.engine.max_rows
    assert max_ongoing_requests(model) > 2 * per_lane
    for deployment in built.values():
        config = deployment._deployment_config
        assert config.max_ongoing_requests > 2 * per_lane
        assert config.max_queued_requests == -1
        assert config.health_check_period_s <= 5


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"min_replicas": 3, "max_replicas": 2}, "max_replicas"),
        ({"num_gpus": 2}, "num_gpus"),
        ({"device": "cuda"}, "num_gpus"),
        ({"device": "cpu", "num_gpus": 1}, "num_gpus"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    checkpoint: Path, fields: dict[str, Any], param: str
) -> None:
    model = ModelSettings(model=str(checkpoint), **fields)
    with pytest.raises(UsageError) as caught:
        build_app(AppSettings(models=(model,)))
    assert caught.value.param == param


def test_two_models_need_two_names(checkpoint: Path) -> None:
    model = ModelSettings(model=str(checkpoint))
    with pytest.raises(UsageError, match="tiny"):
        served_models(AppSettings(models=(model, model)))


def test_a_list_of_models_stands_alone(checkpoint: Path) -> None:
    model = ModelSettings(model=str(checkpoint))
    with pytest.raises(UsageError, match="models"):
        served_models(AppSettings(models=(model,), model="summarizer"))


def test_the_app_knows_what_it_needs(checkpoint: Path) -> None:
    model = ModelSettings(model=str(checkpoint), num_cpus=2, num_gpus=0.5, min_replicas=3)
    settings = AppSettings(models=(model.model_copy(update={"max_replicas": 3}),))
    assert required_cpus(settings) == pytest.approx(6.1)
    assert required_gpus(settings) == 1.5


def test_replicas_follow_the_backlog_and_serve_adds_no_delays_of_its_own(checkpoint: Path) -> None:
    rules = AutoscalingSettings(stats_interval_s=3.0, max_step=2)
    model = ModelSettings(model=str(checkpoint), min_replicas=0, max_replicas=9, autoscaling=rules)
    built = deployments(build_app(AppSettings(models=(model,))))
    config = built["model-tiny"]._deployment_config.autoscaling_config
    assert config.policy.policy_function == "raydiff.serve.autoscaling.BacklogPolicy"
    assert config.policy.policy_kwargs["max_step"] == 2
    assert config.metrics_interval_s == 3.0
    assert (config.upscale_delay_s, config.downscale_delay_s) == (0.0, 0.0)


def test_serves_own_policy_is_a_setting_away(checkpoint: Path) -> None:
    rules = AutoscalingSettings(policy="requests")
    model = ModelSettings(model=str(checkpoint), max_replicas=9, autoscaling=rules)
    built = deployments(build_app(AppSettings(models=(model,))))
    config = built["model-tiny"]._deployment_config.autoscaling_config
    assert config.policy.is_default_policy_function()
    assert config.target_ongoing_requests == model.target_ongoing_requests
