"""A fleet as an operator has it: Redis, a head, two nodes with all replicas, an app from a config.

Everything runs on this machine's loopback interface; Serve's proxies share one port.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from raydiff.launch.ports import free_port
from raydiff.launch.submission import connect, submit

from ...corpus.commands import command
from ...processes import descendants
from ..cluster import wait_until

RAY = str(Path(sys.executable).with_name("ray"))
HEAD, NODES = "127.0.0.2", ("127.0.0.3", "127.0.0.4")
LOOPBACK = "127.0.0.1"
APP = "raydiff"
_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_external_storage_namespace": "serving-drills",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    "OMP_NUM_THREADS": "1",
}
_STARTS = 3
_STARTED = "Ray runtime started."
_STORE = "--object-store-memory=80000000"


class Fleet:
    """Processes that drills kill, stop and start again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._temp = Path(tempfile.mkdtemp(prefix="rd-"))  # short: sockets in it have short names
        self._redis_port, self._gcs_port, dashboard_port = (free_port(LOOPBACK) for _ in range(3))
        self.dashboard = f"http://{LOOPBACK}:{dashboard_port}"
        self.http_port = free_port(LOOPBACK)
        self.url = f"http://{LOOPBACK}:{self.http_port}"
        self._environment = {
            **{k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"},
            **_ENVIRONMENT,
            "RAY_REDIS_ADDRESS": f"{LOOPBACK}:{self._redis_port}",
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.args: dict[str, Any] = {}
        """What the app that runs was deployed with."""

    @property
    def address(self) -> str:
        """What a driver sets as RAY_ADDRESS."""
        return f"{HEAD}:{self._gcs_port}"

    def start(self) -> None:
        """Start everything but the app."""
        redis = [str(self._redis_port), "--bind", LOOPBACK, "--save", "", "--dir", str(self._temp)]
        self._run("redis", ["redis-server", "--port", *redis])
        self.start_head()
        for node in NODES:
            self.start_node(node)

    def start_head(self) -> None:
        """Start the head, which hosts no replicas; after a crash it finds its state in Redis."""
        # A new pod would have no such record, and with it Ray takes the nodes for a head.
        (self._temp / "ray" / "ray_current_cluster").unlink(missing_ok=True)
        self._ray(
            "head",
            "--head",
            f"--node-ip-address={HEAD}",
            "--num-cpus=0",
            f"--port={self._gcs_port}",
            f"--temp-dir={self._temp}/ray",
            f"--dashboard-host={LOOPBACK}",
            f"--dashboard-port={self.dashboard.rpartition(':')[2]}",
            f"--dashboard-agent-listen-port={free_port(LOOPBACK)}",
            f"--ray-client-server-port={free_port(LOOPBACK)}",
        )
        wait_until(self._answers, "the dashboard")

    def start_node(self, node: str) -> None:
        """Start a node that hosts replicas."""
        port = free_port(LOOPBACK)
        self._ray(
            node,
            f"--address={self.address}",
            f"--node-ip-address={node}",
            "--num-cpus=2",
            f"--dashboard-agent-listen-port={port}",
        )

    def stop(self) -> None:
        """End everything."""
        for name in reversed(list(self._processes)):
            self.kill(name)
        shutil.rmtree(self._temp, ignore_errors=True)

    def kill(self, name: str) -> None:
        """Kill the head, a node or Redis with all its processes, without notice."""
        process = self._processes.pop(name)
        for pid in (process.pid, *descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def terminate(self, name: str) -> None:
        """Ask the head or a node to end, as Kubernetes asks a pod, and kill it after 30 s."""
        process = self._processes.pop(name)
        family = descendants(process.pid)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        for pid in (process.pid, *family):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def nodes(self) -> list[str]:
        """Names of the nodes that run."""
        return [node for node in NODES if node in self._processes]

    def deploy(self, args: Mapping[str, Any]) -> None:
        """Put the app that `args` describe in the place of the one there is."""
        self.args = dict(args)
        application = {
            "name": APP,
            "route_prefix": "/",
            "import_path": "raydiff.serve.app:build_app",
            "args": self.args,
        }
        config = {
            "proxy_location": "EveryNode",
            "http_options": {"host": LOOPBACK, "port": self.http_port},
            "logging_config": {"enable_access_log": False},
            "applications": [application],
        }
        submit(connect(self.dashboard), config, 180.0)

    def replicas(self) -> dict[str, dict[str, str]]:
        """Actor ids of the running replicas by their ids, by deployment; empty before there are."""
        applications = self._get("/api/serve/applications/").get("applications", {})
        deployments = applications.get(APP, {}).get("deployments", {})
        return {
            name: {
                replica["replica_id"]: replica["actor_id"]
                for replica in details["replicas"]
                if replica["state"] == "RUNNING"
            }
            for name, details in deployments.items()
        }

    def is_whole(self, counts: Mapping[str, int]) -> bool:
        """Whether each deployment has so many running replicas, and the app serves."""
        try:
            app = self._get("/api/serve/applications/")["applications"][APP]
            running = {name: len(ids) for name, ids in self.replicas().items()}
        except (OSError, KeyError, ValueError):
            return False
        right = all(running.get(name) == count for name, count in counts.items())
        return right and app["status"] == "RUNNING"

    def pids(self, title: str) -> list[int]:
        """Pids of processes whose command line holds `title`."""
        family = {p for process in self._processes.values() for p in descendants(process.pid)}
        return sorted(pid for pid in family if title in command(pid))

    def describe(self, model: str) -> list[dict[str, Any]]:
        """What the replicas of a model say of themselves."""
        code = (
            "import asyncio, json, ray; from raydiff.client import Client; "
            f"ray.init(address={self.address!r}, log_to_driver=False, logging_level='ERROR'); "
            f"c = Client.connect({model!r}); "
            "print(json.dumps(asyncio.run(c.describe(timeout_s=30)), default=str))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        )
        described: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return described

    def _ray(self, name: str, *options: str) -> None:
        ports = ("--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats")
        metrics = f"--metrics-export-port={free_port(LOOPBACK)}"
        for _ in range(_STARTS):
            before = len(self._said(name))
            self._run(name, [RAY, "start", "--block", *options, *ports, metrics, _STORE])
            wait_until(partial(self._came, name, before), f"the start of {name}")
            if self._processes[name].poll() is None:
                return
            self.kill(name)  # on a busy machine Ray gives up; its parts may be left
        raise TimeoutError(f"{name} did not start: {self._log(name)}")

    def _came(self, name: str, before: int) -> bool:
        """Whether `ray start` has come to an end, good or bad."""
        gone = self._processes[name].poll() is not None
        return gone or _STARTED in self._said(name)[before:]

    def _said(self, name: str) -> str:
        return self._log(name).read_text() if self._log(name).exists() else ""

    def _run(self, name: str, arguments: Sequence[str]) -> None:
        with self._log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                arguments, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.dashboard}{path}", timeout=10) as answer:
            return json.load(answer)

    def _answers(self) -> bool:
        try:
            self._get("/api/version")
        except (OSError, ValueError):
            return False
        return True


def signal_all(pids: Sequence[int], number: int) -> None:
    """Send a signal to processes, some of which may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
