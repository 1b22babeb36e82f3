"""A process that hosts a fleet, apart from the load on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from raydiff.bench.serving.remote import Handler
from raydiff.config import AppSettings, ModelSettings, ServeSettings, deployment_name
from raydiff.engine.counts import Work

DESCRIBE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """One model's replicas."""

    model: ModelSettings
    cpus: int
    """Logical CPUs of its cluster."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The fleet at one moment."""

    at_s: float
    """Monotonic time."""
    running: int
    starting: int


@dataclass(frozen=True, kw_only=True)
class Resize:
    """Ask for a fixed number of replicas; answered with the seconds until all of them run."""

    replicas: int


@dataclass(frozen=True, kw_only=True)
class WorkDone:
    """Ask for the `Work` that all replicas have done."""


@dataclass
class _Host:
    fleet: Fleet
    app: Any
    client: Any
    counts: Mapping[str, int] = field(default_factory=dict)

    def answer(self, message: Any) -> Any:
        if isinstance(message, Resize):
            return self.resize(message.replicas)
        if isinstance(message, WorkDone):
            described = asyncio.run(self.client.describe(timeout_s=DESCRIBE_S))
            return sum((Work(**replica["work"]) for replica in described), Work())
        return self.app if message == "app" else self.state()

    def state(self) -> State:
        from ray import serve

        app = serve.status().applications[self.app.app_name]
        states = app.deployments[deployment_name(self.fleet.model.served_name)].replica_states
        counts = {str(getattr(name, "value", name)): count for name, count in states.items()}
        return State(
            at_s=time.monotonic(),
            running=counts.get("RUNNING", 0),
            starting=counts.get("STARTING", 0),
        )

    def resize(self, replicas: int) -> float:
        from raydiff.launch.deploy import redeploy

        bounds = {"min_replicas": replicas, "max_replicas": replicas}
        began_s = time.monotonic()
        redeploy(AppSettings(models=(self.fleet.model.model_copy(update=bounds),)))
        while self.state().running != replicas:
            time.sleep(0.1)
        return time.monotonic() - began_s


@contextmanager
def fleet_host(fleet: Fleet) -> Iterator[Handler]:
    """Answers "app" with the RunningApp, "state" with its State, and `Resize` and `WorkDone`."""
    import ray

    from raydiff.client import Client
    from raydiff.launch import running_app

    ray.init(
        address="local",
        num_cpus=fleet.cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    try:
        with running_app(AppSettings(models=(fleet.model,)), ServeSettings(port=0)) as app:
            client = Client.connect(fleet.model.served_name, app.app_name)
            yield _Host(fleet, app, client).answer
    finally:
        ray.shutdown()
