"""`build_app`: the Serve application, from typed arguments.

    serve run raydiff.serve.app:build_app model=summarizer

The same arguments stand under `args:` in a Serve config. This module must not postpone its
annotations: Serve reads `build_app`'s to turn the arguments into AppSettings.
"""

from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from raydiff.config import AppSettings, ModelSettings, deployment_name
from raydiff.errors import UsageError, invalid
from raydiff.families import load_spec
from raydiff.serve.access import check_binding
from raydiff.serve.access.rates.remote import RateLimiter
from raydiff.serve.autoscaling import BacklogPolicy
from raydiff.serve.gateway import Gateway
from raydiff.serve.replica import Replica
from raydiff.serve.versions import gateway_version, model_version, user_config, versioned
from raydiff.version import __version__

GATEWAY = "gateway"
"""Name of the gateway's deployment."""
LIMITER = "limiter"
"""Name of the deployment that keeps API keys to their limits, where there are keys."""
GATEWAY_CPUS = 0.1
GATEWAY_MAX_ONGOING = 100_000
HEALTH_CHECK_PERIOD_S = 2.5
HEALTH_CHECK_TIMEOUT_S = 5.0
"""Three checks in a row must fail. They begin up to 1.1 periods apart, and Serve looks at them
about once a second: a replica is given up within 12 s of becoming unhealthy, and one that does not
answer at all within 21 s of its last answer."""
CONSTRUCTOR_RETRIES = 2
_LOOK_BACK_S = 11.0
"""Serve wants it above its own default of the reports' interval."""
ALL_AT_ONCE = 100
"""Percent: new gateways start before old ones stop, so that no request finds none."""


def build_app(args: AppSettings) -> Application:
    """One gateway, and one deployment of replicas for each model.

    Raises:
        ModelError: a model is unknown or its checkpoint malformed.
        UsageError: settings contradict each other; `param` names one.
    """
    settings = args.model_copy(update={"models": served_models(args)})
    for model in settings.models:
        check_model(model)
    check_binding(settings.access, host=None)
    replicas = {m.served_name: _replicas(m, settings).bind(m) for m in settings.models}
    limiter = None if settings.access.keys_file is None else _limiter().bind()
    return _gateway(settings).bind(settings, replicas, limiter)


def __getattr__(name: str) -> Application:
    """`raydiff.serve.app:app`, for `serve build`, which takes no arguments: the bundled model's."""
    if name == "app":
        return build_app(AppSettings())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def served_models(args: AppSettings) -> tuple[ModelSettings, ...]:
    """The models of an app, the shorthand fields spelled out.

    Raises:
        UsageError: two models have the same name, or the shorthand stands beside a list.
    """
    if not args.models:
        return (shorthand(args),)
    if {"model", "replicas", "threads", "num_gpus"} & args.model_fields_set:
        message = "models: expected a list of models, or model, replicas, threads and num_gpus."
        raise UsageError(message, "models")
    names = [m.served_name for m in args.models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = invalid("models", expected="models of different names", got=twice)
        raise UsageError(message, "models")
    return args.models


def shorthand(args: AppSettings) -> ModelSettings:
    """The one model that `model`, `replicas`, `threads` and `num_gpus` describe."""
    model = ModelSettings(
        model=args.model,
        min_replicas=args.replicas,
        max_replicas=args.replicas,
        num_gpus=args.num_gpus,
    )
    engine = model.engine.model_copy(update={"threads": args.threads})
    return model.model_copy(update={"engine": engine})


def check_model(model: ModelSettings) -> None:
    """Refuse what can never start.

    Raises:
        ModelError: the model is unknown or its checkpoint malformed.
        UsageError: a setting contradicts another.
    """
    load_spec(model.model)
    if model.max_replicas < model.min_replicas:
        expected = f"at least min_replicas ({model.min_replicas})"
        message = invalid("max_replicas", expected=expected, got=model.max_replicas)
        raise UsageError(message, "max_replicas")
    if model.num_gpus > 1:
        remedy = "A replica runs on one device; add replicas to use more."
        message = invalid("num_gpus", expected="at most 1", got=model.num_gpus, remedy=remedy)
        raise UsageError(message, "num_gpus")
    if model.device == "cuda" and model.num_gpus == 0:
        message = invalid("num_gpus", expected="above 0 for device 'cuda'", got=model.num_gpus)
        raise UsageError(message, "num_gpus")
    if model.device == "cpu" and model.num_gpus > 0:
        message = invalid("num_gpus", expected="0 for device 'cpu'", got=model.num_gpus)
        raise UsageError(message, "num_gpus")


def max_ongoing_requests(model: ModelSettings) -> int:
    """Far above what the engine takes on, so that it is the engine that refuses, by lane."""
    lanes = 2
    return 2 * lanes * model.engine.max_in_flight


def required_cpus(settings: AppSettings) -> float:
    """CPUs that the app reserves at its smallest."""
    models = served_models(settings)
    return GATEWAY_CPUS * settings.gateways + sum(
        m.num_cpus * max(1, m.min_replicas) for m in models
    )


def required_gpus(settings: AppSettings) -> float:
    """GPUs that the app reserves at its smallest."""
    return sum(m.num_gpus * m.min_replicas for m in served_models(settings))


def _gateway(settings: AppSettings) -> Any:
    deployment = serve.deployment(
        serve.ingress()(Gateway),
        name=GATEWAY,
        num_replicas=settings.gateways,
        ray_actor_options={"num_cpus": GATEWAY_CPUS},
        max_ongoing_requests=GATEWAY_MAX_ONGOING,
        max_surge_percent=ALL_AT_ONCE,
        **_lifecycle(settings),
    )
    return versioned(deployment, gateway_version(settings))


def _replicas(model: ModelSettings, settings: AppSettings) -> Any:
    actor_options: dict[str, Any] = {"num_cpus": model.num_cpus, "num_gpus": model.num_gpus}
    if model.accelerator_type is not None:
        actor_options["accelerator_type"] = model.accelerator_type
    deployment = serve.deployment(
        Replica,
        name=deployment_name(model.served_name),
        ray_actor_options=actor_options,
        max_ongoing_requests=max_ongoing_requests(model),
        max_surge_percent=model.update_surge_percent,
        user_config=user_config(model),
        autoscaling_config=_autoscaling(model),
        **_lifecycle(settings),
    )
    return versioned(deployment, model_version(model))


def _limiter() -> Any:
    """One, and never two side by side: its successor learns what it knew from the gateways."""
    deployment = serve.deployment(
        RateLimiter,
        name=LIMITER,
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=GATEWAY_MAX_ONGOING,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        logging_config={"enable_access_log": False},
    )
    return versioned(deployment, __version__)


def _autoscaling(model: ModelSettings) -> AutoscalingConfig:
    """Serve's bounds around our policy, which has its own delays and steps: Serve adds none."""
    rules = model.autoscaling
    if rules.policy == "requests":
        return AutoscalingConfig(
            min_replicas=model.min_replicas,
            max_replicas=model.max_replicas,
            target_ongoing_requests=model.target_ongoing_requests,
        )
    policy = AutoscalingPolicy(
        policy_function=BacklogPolicy,
        policy_kwargs=rules.model_dump(exclude={"policy", "stats_interval_s"}),
    )
    config = AutoscalingConfig(
        min_replicas=model.min_replicas,
        max_replicas=model.max_replicas,
        target_ongoing_requests=model.target_ongoing_requests,
        look_back_period_s=max(rules.look_back_s, 2 * rules.stats_interval_s, _LOOK_BACK_S),
        upscale_delay_s=0.0,
        downscale_delay_s=0.0,
        downscale_to_zero_delay_s=0.0,
        policy=policy,
    )
    # past validation: Ray 2.60 warns of this field as deprecated, but reads nothing else
    return config.model_copy(update={"metrics_interval_s": rules.stats_interval_s})


def _lifecycle(settings: AppSettings) -> dict[str, Any]:
    return {
        "health_check_period_s": HEALTH_CHECK_PERIOD_S,
        "health_check_timeout_s": HEALTH_CHECK_TIMEOUT_S,
        "graceful_shutdown_timeout_s": settings.drain_s,
        "graceful_shutdown_wait_loop_s": 0.5,
        "max_constructor_retry_count": CONSTRUCTOR_RETRIES,
        "logging_config": {"enable_access_log": False},
    }
