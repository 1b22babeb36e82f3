"""The Ray cluster of a run: the one at hand, the one that is named, or a local one of its own."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

import ray
from ray._private.utils import read_ray_address
from ray.exceptions import RayError

from raydiff.config import ServeSettings, ray_address
from raydiff.errors import ClusterError, UsageError
from raydiff.launch.haproxy import RUNNING_CLUSTER, haproxy_environment
from raydiff.launch.ports import require_free
from raydiff.launch.probe import probe
from raydiff.launch.signals import deferred

log = logging.getLogger(__name__)

LOCAL = "local"
LOOPBACK = "127.0.0.1"
_ANY = "auto"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster this process is connected to."""

    address: str
    """Address that `RAY_ADDRESS` takes in another process."""
    node_address: str
    """Address of the node this process is on."""
    metrics_url: str
    started: bool
    """Whether it was started here, for this run alone."""
    connected: bool
    """Whether the connection was made here."""

    def leave(self) -> None:
        """Disconnect, which stops a cluster that was started here."""
        if self.connected:
            ray.shutdown()


def join_cluster(
    *, cpus: int, endpoint: ServeSettings, metrics_port: int | None, jobs: bool = False
) -> Cluster:
    """Connect to the cluster at hand or start a local one with `cpus` logical CPUs.

    In this order: a connection this process already has, `RAY_ADDRESS` (a job's included), the
    cluster that `ray start` recorded on this machine, a new one on the loopback interface, with a
    job server there if `jobs`.

    Raises:
        ClusterError: the named cluster is dead, foreign or cannot be used from here, or a port
            that a new one needs is taken.
    """
    if ray.is_initialized():
        return _cluster(started=False, connected=False)
    named = ray_address()
    address = named or _recorded_address()
    if address is None or address == LOCAL:
        require_free("--port", endpoint.host, endpoint.port)
        if metrics_port is not None:
            require_free("--metrics-port", LOOPBACK, metrics_port)
        _start(cpus, metrics_port, endpoint, jobs=jobs)
        return _cluster(started=True, connected=True)
    if endpoint.haproxy:
        raise UsageError(RUNNING_CLUSTER, "haproxy")
    _connect(address, named is not None)
    cluster = _cluster(started=False, connected=True)
    if metrics_port is not None and not cluster.metrics_url.endswith(f":{metrics_port}/metrics"):
        log.warning("The metrics port is that of the running cluster: %s", cluster.metrics_url)
    return cluster


def _recorded_address() -> str | None:
    """The live cluster that `ray start` recorded; Ray leaves the record when it is killed."""
    address = read_ray_address()
    if address and probe(address) == "none":
        log.warning(
            "Ray recorded a cluster at %s, but none answers there; starting a local one. "
            "Remove the record with `ray stop`.",
            address,
        )
        return None
    return address or None


def _connect(address: str, named: bool) -> None:
    source = f"RAY_ADDRESS={address}" if named else f"The cluster recorded at {address}"
    remedy = f"Start that cluster, or set RAY_ADDRESS={LOCAL} to use one of your own."
    if "://" in address:
        raise ClusterError(
            f"{source}: expected host:port, got a client or dashboard address. Run this on a "
            "node of the cluster, or send it there with `ray job submit`."
        )
    answer = "ready" if address == _ANY else probe(address)
    if answer == "none":
        raise ClusterError(f"{source}: no Ray cluster answers there. {remedy}")
    if answer == "locked":
        raise ClusterError(
            f"{source}: that cluster wants an authentication token. Set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH."
        )
    try:
        _init(address=address)
    except RuntimeError as error:
        raise ClusterError(f"{source}: {_reason(error)} {remedy}") from None
    except (ConnectionError, ValueError, TimeoutError, RayError) as error:
        raise ClusterError(f"{source}: {error} {remedy}") from None


def _reason(error: RuntimeError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("Version mismatch"):
        return (
            "that cluster runs other versions than this process. "
            + " ".join(lines).replace("Version mismatch: ", "")
            + "."
        )
    return " ".join(lines)


def _start(cpus: int, metrics_port: int | None, endpoint: ServeSettings, *, jobs: bool) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By default Ray's workers yield to every other process (nice 15): on a machine that does
    # anything else, replicas would starve.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if endpoint.haproxy:
        os.environ.update(haproxy_environment())
    try:
        _init(
            address=LOCAL,
            num_cpus=cpus,
            include_dashboard=jobs,  # the job server is a part of it
            dashboard_host=LOOPBACK,
            _metrics_export_port=metrics_port,
        )
    except Exception as error:  # Ray raises bare Exception when a node does not come up in time
        raise ClusterError(f"No local Ray cluster could be started: {error}") from error


def _init(**options: Any) -> None:
    """`ray.init`, quiet and whole: connected afterwards, or nothing left of it."""
    try:
        with deferred():
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except BaseException:
        ray.shutdown()
        raise


def _cluster(*, started: bool, connected: bool) -> Cluster:
    node = _own_node()
    return Cluster(
        address=ray.get_runtime_context().gcs_address,
        node_address=node["NodeManagerAddress"],
        metrics_url=f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics",
        started=started,
        connected=connected,
    )


def _own_node() -> dict[str, Any]:
    nodes: list[dict[str, Any]] = [node for node in ray.nodes() if node["Alive"]]
    own = ray.get_runtime_context().get_node_id()
    return next((node for node in nodes if node["NodeID"] == own), nodes[0])
