"""Puts the application on a cluster, waits until it serves, and takes it away again."""

from __future__ import annotations

import logging
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve import Application
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview

from raydiff.config import APP_NAME, AppSettings, ServeSettings
from raydiff.errors import ClusterError, ModelError
from raydiff.launch.drain import drain_gateways
from raydiff.launch.ports import free_port, require_free
from raydiff.launch.signals import at_termination, undisturbed
from raydiff.serve.app import build_app, required_cpus, required_gpus

log = logging.getLogger(__name__)

ROUTE = "/"
POLL_S = 0.25
REMIND_S = 30.0
RECOVERY_S = 300.0
"""How long an application may stay unhealthy before it has failed."""
START_TIMEOUT_S = 1800.0
"""A large model may take this long to load, and a cluster this long to add a node."""
HTTP_TIMEOUT_S = 30.0

_RAISED = re.compile(r"^(?:raydiff\.errors\.)?(\w*Error|Overloaded|PromptTooLong): (.*)$", re.M)


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """An application on the cluster."""

    name: str
    route: str | None
    deployments: Mapping[str, Any]
    """What each was configured with; of our models, `raydiff.serve.versions.user_config`."""


def running_applications() -> list[Deployed]:
    """All applications of the cluster's Serve, ours or not."""
    client = _get_global_client(raise_if_no_controller_running=False)
    details = {} if client is None else client.get_serve_details()["applications"]
    return [
        Deployed(
            name=name,
            route=app["route_prefix"],
            deployments={
                deployment: details["deployment_config"].get("user_config")
                for deployment, details in app["deployments"].items()
            },
        )
        for name, app in details.items()
    ]


@contextmanager
def deployed(
    application: Application,
    settings: AppSettings,
    endpoint: ServeSettings,
    *,
    keep: bool,
    drain: bool,
) -> Iterator[None]:
    """The application on this cluster, for the time of the block.

    `keep` leaves it in place on the way out, for a cluster that is about to stop anyway. `drain`
    lets the requests in flight end first, for up to `settings.drain_s`.

    Raises:
        ClusterError: the HTTP port is taken, or the application does not start.
        ModelError: a replica could not load its model.
    """
    started_serve = not _serve_runs()
    try:
        if started_serve:
            _start_serve(endpoint)
        else:
            _warn_of_other_endpoint(endpoint)
        if drain:
            _deploy(application, settings)
            try:
                yield
            finally:
                drain_gateways(APP_NAME, settings.drain_s)
        else:
            with at_termination(lambda: _request_removal(started_serve, keep)):
                _deploy(application, settings)
                yield
    finally:
        if not keep:
            # Ray prints Serve's end as an error, on the standard output of whoever asked for it
            with undisturbed(), redirect_stdout(sys.stderr):
                _remove(started_serve)


def wait_until_running(name: str, hint: str = "") -> None:
    """Wait until the application serves.

    Raises:
        ClusterError: it failed, vanished or took too long.
        ModelError: a replica could not load its model.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    remind = time.monotonic() + REMIND_S
    recovered_by = time.monotonic() + RECOVERY_S
    while time.monotonic() < deadline:
        app = _statuses().get(name)
        if app is None:
            raise ClusterError(f"Application {name!r} was deleted while it started.")
        if app.status == ApplicationStatus.RUNNING:
            return
        if app.status == ApplicationStatus.DEPLOY_FAILED:
            raise _failure(name, app)
        if app.status == ApplicationStatus.UNHEALTHY:
            # Serve replaces replicas that died; that is a bad moment, not the end.
            if time.monotonic() > recovered_by:
                raise _failure(name, app)
        else:
            recovered_by = time.monotonic() + RECOVERY_S
        if time.monotonic() > remind:
            remind += REMIND_S
            log.warning("Application %r is still starting. %s", name, hint)
        time.sleep(POLL_S)
    raise ClusterError(f"Application {name!r} did not start within {START_TIMEOUT_S:.0f} s. {hint}")


def endpoint_url(node_address: str) -> str:
    """Base URL of the cluster's HTTP endpoint as seen from this node."""
    options = _get_global_client().http_config
    host = options.host or "127.0.0.1"
    if host in ("0.0.0.0", "::"):
        host = node_address
    return f"http://{f'[{host}]' if ':' in host else host}:{options.port}{options.root_path}"


def redeploy(settings: AppSettings) -> None:
    """Change the running application into the one that `settings` describe.

    Models whose own settings are what they were keep their replicas and what runs on them.

    Raises:
        ClusterError: Serve refused it, or it does not start.
        ModelError: a model is unknown or cannot be loaded.
        UsageError: settings contradict each other.
    """
    _deploy(build_app(settings), settings)


def _deploy(application: Application, settings: AppSettings) -> None:
    hint = _resources_hint(settings)
    try:
        serve._run(application, name=APP_NAME, route_prefix=ROUTE, _blocking=False)
    except (RayServeException, RayError, RuntimeError, ValueError, TimeoutError) as error:
        raise ClusterError(f"Serve refused the application: {_last_line(error)}") from error
    wait_until_running(APP_NAME, hint)
    _wait_for_http(endpoint_url("127.0.0.1"))


def _start_serve(endpoint: ServeSettings) -> None:
    port = endpoint.port or free_port(endpoint.host)
    require_free("--port", endpoint.host, port)
    options = {"host": endpoint.host, "port": port}
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    try:
        serve.start(
            proxy_location="HeadOnly",
            http_options=options,
            logging_config={"enable_access_log": False},
        )
    except (RayServeException, RayError, RuntimeError, TimeoutError) as error:
        message = f"Serve could not listen on {endpoint.host}:{port}: {_last_line(error)}"
        raise ClusterError(message) from error


def _warn_of_other_endpoint(endpoint: ServeSettings) -> None:
    options = _get_global_client().http_config
    if endpoint.port not in (0, options.port) or endpoint.host != options.host:
        log.warning(
            "Serve listens on %s:%s on this cluster already; the host and port asked for, %s:%s, "
            "have no effect.",
            options.host,
            options.port,
            endpoint.host,
            endpoint.port,
        )


def _wait_for_http(url: str) -> None:
    """The proxy learns of a new route a moment after its application runs."""
    deadline = time.monotonic() + HTTP_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/v1/models", timeout=HTTP_TIMEOUT_S):
                return
        except urllib.error.HTTPError as error:
            if error.code == 401:  # it is ours that asks for a key
                return
            time.sleep(POLL_S)
        except (urllib.error.URLError, OSError):
            time.sleep(POLL_S)
    log.warning("The application runs, but %s does not answer yet.", url)


def _request_removal(started_serve: bool, keep: bool) -> None:
    """Ask the controller for the end, which it brings about even when this process is gone."""
    client = None if keep else _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return
    if started_serve:
        client._controller.graceful_shutdown.remote()
    else:
        client._controller.delete_apps.remote([APP_NAME])


def _remove(started_serve: bool) -> None:
    try:
        if started_serve:
            serve.shutdown()
        elif APP_NAME in _statuses():
            serve.delete(APP_NAME)
    except (RayServeException, RayError, RuntimeError, TimeoutError) as error:
        log.warning("Application %r could not be removed: %s", APP_NAME, _last_line(error))


def _statuses() -> dict[str, ApplicationStatusOverview]:
    statuses: dict[str, ApplicationStatusOverview] = serve.status().applications
    return statuses


def _serve_runs() -> bool:
    return _get_global_client(raise_if_no_controller_running=False) is not None


def _failure(name: str, app: ApplicationStatusOverview) -> ClusterError | ModelError:
    messages = [app.message, *(d.message for d in app.deployments.values())]
    for message in messages:
        raised = _RAISED.findall(message)
        if raised:
            kind, reason = raised[-1]
            if kind == "ModelError":
                return ModelError(reason)
            return ClusterError(f"Application {name!r} failed to start: {kind}: {reason}")
    reason = " ".join(message.strip() for message in messages if message.strip())
    return ClusterError(f"Application {name!r} failed to start: {reason}")


def _resources_hint(settings: AppSettings) -> str:
    total = ray.cluster_resources()
    return (
        f"It needs {required_cpus(settings):g} CPUs and {required_gpus(settings):g} GPUs; the "
        f"cluster has {total.get('CPU', 0):g} and {total.get('GPU', 0):g}, some of them taken."
    )


def _last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
