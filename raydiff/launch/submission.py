"""Hands a checked Serve config to a cluster through its dashboard, and waits until it serves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from raydiff.errors import ClusterError

POLL_S = 0.5
_ENDED_BADLY = ("DEPLOY_FAILED",)


class ServeApi(Protocol):
    """Serve's REST API; Ray's `ServeSubmissionClient` is the real one."""

    def deploy_applications(self, config: dict[str, Any]) -> None: ...

    def get_serve_details(self) -> dict[str, Any]: ...


def connect(address: str) -> ServeApi:
    """The API of the cluster whose dashboard is at `address` (http://host:port).

    Raises:
        ClusterError: nothing answers there, or it lets nobody in without a token.
    """
    from ray.dashboard.modules.serve.sdk import ServeSubmissionClient

    try:
        client: ServeApi = ServeSubmissionClient(address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ClusterError(f"--address {address}: {reason}") from None
    return client


def submit(api: ServeApi, config: Mapping[str, Any], wait_s: float) -> list[str]:
    """Deploy the config's applications; their names once all of them serve.

    Deployments whose own settings are what they were keep their replicas. With `wait_s` 0 nothing
    is waited for.

    Raises:
        ClusterError: Serve refused the config, an application failed, or it took too long.
    """
    names = [application["name"] for application in config["applications"]]
    try:
        api.deploy_applications(dict(config))
        _wait(api, names, wait_s)
    except (ConnectionError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ClusterError(f"Serve refused the config: {reason}") from None
    return names


def _wait(api: ServeApi, names: list[str], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        applications = api.get_serve_details().get("applications", {})
        states = {name: applications.get(name, {}).get("status") for name in names}
        for name, state in states.items():
            if state in _ENDED_BADLY:
                message = " ".join(applications[name].get("message", "").split())
                raise ClusterError(f"Application {name!r} failed: {message}")
        if all(state == "RUNNING" for state in states.values()):
            return
        time.sleep(POLL_S)
    if wait_s > 0:
        raise ClusterError(f"{', '.join(names)}: not all serve after {wait_s:.0f} s.")
