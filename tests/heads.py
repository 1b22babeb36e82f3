"""A Ray head node as `ray start` makes it, with its job server, on the loopback interface."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .processes import descendants, still_alive

RAY = str(Path(sys.executable).with_name("ray"))


@dataclass(frozen=True, kw_only=True)
class Head:
    """A running head node that wants its token."""

    pid: int
    jobs_url: str
    token: str

    def environment(self) -> dict[str, str]:
        """What a client needs to be let in."""
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}
        rest = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for `python`
        return {**rest, **auth, "RAY_USAGE_STATS_ENABLED": "0", "PATH": path}

    def job(
        self, *args: str, check: bool = True, timeout_s: float = 200.0
    ) -> subprocess.CompletedProcess[str]:
        """`ray job ARGS` against this head."""
        verb, *rest = args
        return subprocess.run(
            [RAY, "job", verb, "--address", self.jobs_url, *rest],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout_s,
        )

    def status(self, submission_id: str) -> str:
        """PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED; faster than `ray job status`."""
        with urllib.request.urlopen(
            self._asked(f"/api/jobs/{submission_id}"), timeout=30
        ) as answer:
            status: str = json.load(answer)["status"]
        return status

    def answers(self) -> bool:
        """Whether the job server is up."""
        try:
            with urllib.request.urlopen(self._asked("/api/version"), timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def _asked(self, path: str) -> urllib.request.Request:
        authorization = {"Authorization": f"Bearer {self.token}"}
        return urllib.request.Request(f"{self.jobs_url}{path}", headers=authorization)

    def processes(self) -> set[int]:
        """Everything that runs below this head."""
        return descendants(self.pid)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [s.getsockname()[1] for s in sockets]


def _options(folder: Path, cpus: int, ports: Sequence[int]) -> list[str]:
    gcs, dashboard, metrics, agent, client = ports
    return [
        "--head",
        "--block",
        "--node-ip-address=127.0.0.2",  # Ray replaces 127.0.0.1 by the machine's own address
        f"--temp-dir={folder}/ray",
        f"--num-cpus={cpus}",
        f"--port={gcs}",
        f"--metrics-export-port={metrics}",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={dashboard}",
        f"--dashboard-agent-listen-port={agent}",
        f"--ray-client-server-port={client}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--object-store-memory=268435456",
        "--disable-usage-stats",
    ]


@contextmanager
def started_head(*, cpus: int = 4, token: str = "t" * 32) -> Iterator[Head]:
    """A head node with token authentication, gone with all its processes afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="rd-"))  # short: Ray puts sockets in it
    ports = _free_ports(5)
    head = Head(pid=0, jobs_url=f"http://127.0.0.1:{ports[1]}", token=token)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [RAY, "start", *_options(folder, cpus, ports)],
            env={**head.environment(), "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_for_jobs(head, process, folder / "log")
        yield Head(pid=process.pid, jobs_url=head.jobs_url, token=token)
    finally:
        family = descendants(process.pid)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        for pid in still_alive(family | {process.pid}):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_jobs(head: Head, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(240):
        if head.answers():
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.5)
    raise AssertionError(log.read_text())
