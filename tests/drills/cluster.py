"""The cluster of the drills: a head where drivers run, and nodes that come and go, on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ray
from ray import serve
from ray.cluster_utils import Cluster

from raydiff.config import APP_NAME, ModelSettings, deployment_name

from ..corpus.commands import command
from ..processes import descendants
from .replica import SLOT, drill_app

MODEL = "summarizer"
LOOPBACK = "127.0.0.1"
_WAIT_S = 180.0
_STORE_BYTES = 80 * 2**20
_WORKER, _REPLICA = "ShardWorker", "ServeReplica:raydiff:model-"


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = _WAIT_S) -> None:
    """Wait, looking often."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(0.05)


class DrillCluster:
    """A head, and nodes with a replica each."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self._size = nodes
        self._logs = folder / "session_latest" / "logs"
        self._nodes: list[Any] = []
        with patch("ray._private.utils.write_ray_address"):  # it would lure other processes here
            self._cluster = Cluster(
                initialize_head=True,
                head_node_args={
                    "node_ip_address": LOOPBACK,
                    "num_cpus": 1,
                    "include_dashboard": False,
                    "object_store_memory": _STORE_BYTES,
                    "temp_dir": str(folder),
                },
            )

    @property
    def address(self) -> str:
        """What a driver sets as RAY_ADDRESS."""
        return str(self._cluster.address)

    def start(self) -> None:
        """Add the nodes and deploy the app, which outlives every driver."""
        self.add_missing()
        ray.init(address=self.address, namespace="drills", log_to_driver=False)
        serve.start(proxy_location="Disabled")
        serve.run(drill_app(MODEL, self._size), name=APP_NAME, route_prefix="/")
        self.heal()

    def stop(self) -> None:
        """End everything."""
        if ray.is_initialized():
            with suppress(Exception):  # whatever fails here, the processes end below
                serve.shutdown()
            ray.shutdown()
        self._cluster.shutdown()

    def workers(self) -> list[int]:
        """Pids of corpus workers."""
        return self._pids(_WORKER)

    def replicas(self) -> list[int]:
        """Pids of replicas."""
        return self._pids(_REPLICA)

    def remove_node(self, index: int) -> None:
        """Take a node with all its processes away, without notice."""
        node = self._nodes.pop(index)
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_raylet(self, index: int) -> None:
        """Kill a node's raylet only; what runs on it has to notice."""
        node = self._nodes.pop(index)
        family = descendants(self._raylet(node))
        node.kill_raylet()
        wait_until(
            lambda: not any("ray::" in command(pid) for pid in family), "orphans of a raylet"
        )
        self._cluster.remove_node(node, allow_graceful=False)

    def heal(self) -> None:
        """Bring nodes and replicas back to their number, all of them running."""
        for pid in (*self.workers(), *self.replicas()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.add_missing()
        wait_until(self._is_whole, "replicas")

    def keep_logs(self, folder: Path, since: float) -> None:
        """Copy the logs that were written to since a time, for whoever looks into a failure."""
        for path in self._logs.rglob("*"):
            if path.is_file() and path.stat().st_mtime >= since:
                target = folder / path.relative_to(self._logs)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)

    def wait_until_quiet(self) -> None:
        """Wait until no worker of an earlier driver is left."""
        wait_until(lambda: not self.workers(), "workers of a driver that is gone")

    def add_missing(self) -> None:
        """Add nodes in place of those that are gone; their replicas start meanwhile."""
        while len(self._nodes) < self._size:
            node = self._cluster.add_node(
                node_ip_address=LOOPBACK,
                num_cpus=2,
                resources={SLOT: 1},
                object_store_memory=_STORE_BYTES,
            )
            self._nodes.append(node)

    def _is_whole(self) -> bool:
        name = deployment_name(ModelSettings(model=MODEL).served_name)
        deployment = serve.status().applications[APP_NAME].deployments[name]
        return deployment.replica_states == {"RUNNING": self._size}

    def _raylet(self, node: Any) -> int:
        return int(node.all_processes["raylet"][0].process.pid)

    def _pids(self, name: str) -> list[int]:
        return sorted(pid for pid in descendants(os.getpid()) if name in command(pid))
