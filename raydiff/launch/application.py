"""`running_app`: the application that a command or job needs, found or started."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass

from raydiff.config import (
    APP_NAME,
    AppSettings,
    ModelSettings,
    ServeSettings,
    deployment_name,
    usable_cores,
)
from raydiff.errors import ClusterError
from raydiff.launch.alike import require_alike
from raydiff.launch.cluster import Cluster, join_cluster
from raydiff.launch.deploy import (
    ROUTE,
    deployed,
    endpoint_url,
    running_applications,
    wait_until_running,
)
from raydiff.launch.signals import terminable, undisturbed
from raydiff.serve.access import check_binding
from raydiff.serve.app import GATEWAY, build_app, required_cpus, served_models

SPARE_CPUS = 2
"""Logical CPUs of a local cluster beside the app's, for the workers that feed it."""


@dataclass(frozen=True, kw_only=True)
class RunningApp:
    """An application that serves."""

    url: str
    """Base of the HTTP endpoint, without `/v1`."""
    metrics_url: str
    """Where Prometheus scrapes this node's metrics."""
    address: str
    """What another process sets as RAY_ADDRESS to find the app."""
    app_name: str
    models: tuple[str, ...]
    """Names that requests use."""
    started_cluster: bool
    started_app: bool


@contextmanager
def running_app(
    settings: AppSettings,
    serve: ServeSettings,
    *,
    metrics_port: int | None = None,
    reuse: bool = True,
    drain: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Iterator[RunningApp]:
    """The app described by `settings`, for the time of the block.

    A running app that serves the models is used as it is, if `reuse`. Otherwise one is started,
    on the cluster at hand or on a local one. On the way out, whether by the block's end, an
    exception, SIGINT or SIGTERM, what was started here is removed and nothing else; with `drain`
    its requests in flight may end first. `check` is called once the cluster is joined, so that what
    it refuses need not wait for a model to load.

    Raises:
        ClusterError: no cluster can be used, a port is taken, another application is in the
            way, or the app does not start; the message says what to do.
        ModelError: a model is unknown or cannot be loaded.
        UsageError: settings contradict each other.
    """
    check_binding(settings.access, serve.host)
    application = build_app(settings)
    asked = served_models(settings)
    models = tuple(model.served_name for model in asked)
    cpus = max(usable_cores(), math.ceil(required_cpus(settings)) + SPARE_CPUS)
    with terminable():
        cluster = join_cluster(
            cpus=cpus,
            endpoint=serve,
            metrics_port=metrics_port,
            jobs=settings.batches is not None,
        )
        try:
            check()
            found = _find(asked, reuse)
            if found is not None:
                yield _running(found, models, cluster, started_app=False)
            else:
                with deployed(application, settings, serve, keep=cluster.started, drain=drain):
                    yield _running(APP_NAME, models, cluster, started_app=True)
        finally:
            with undisturbed(), redirect_stdout(sys.stderr):
                cluster.leave()


def _find(asked: Sequence[ModelSettings], reuse: bool) -> str | None:
    """The application that serves the models already.

    Raises:
        ClusterError: one is in the way.
    """
    names = [deployment_name(model.served_name) for model in asked]
    applications = running_applications()
    for app in applications if reuse else ():
        if {GATEWAY, *names} <= app.deployments.keys():
            for model, name in zip(asked, names, strict=True):
                require_alike(model, app.deployments[name], app.name)
            wait_until_running(app.name)
            return app.name
    in_the_way = next((a for a in applications if a.name == APP_NAME or a.route == ROUTE), None)
    if in_the_way is None:
        return None
    models = ", ".join(model.served_name for model in asked)
    raise ClusterError(
        f"This cluster already runs application {in_the_way.name!r} at route "
        f"{in_the_way.route!r} with deployments {', '.join(sorted(in_the_way.deployments))}; "
        f"{models} cannot be served beside it. Delete it (`serve shutdown`), or set "
        "RAY_ADDRESS=local to use a cluster of your own."
    )


def _running(
    name: str, models: tuple[str, ...], cluster: Cluster, *, started_app: bool
) -> RunningApp:
    return RunningApp(
        url=endpoint_url(cluster.node_address),
        metrics_url=cluster.metrics_url,
        address=cluster.address,
        app_name=name,
        models=models,
        started_cluster=cluster.started,
        started_app=started_app,
    )
