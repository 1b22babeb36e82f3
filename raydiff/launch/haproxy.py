"""HAProxy, which Ray brings along, in the place of Serve's own proxy.

Serve reads its switch from the environment of the cluster's processes, so it is set before a
cluster starts: for `raydiff serve --haproxy` here, elsewhere in the environment of the head and of
every worker.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from raydiff.config import ServeSettings
from raydiff.errors import UsageError
from raydiff.launch.ports import free_port

LOOPBACK = ("127.0.0.1", "::1", "localhost")
RUNNING_CLUSTER = (
    "--haproxy: a running cluster has been started with HAProxy or without. Set "
    "RAY_SERVE_ENABLE_HA_PROXY=1 in the environment of its head and its workers instead."
)


def haproxy_environment() -> dict[str, str]:
    """What switches it on, with ports and files of its own: the usual ones are fixed, so that two
    clusters of one machine would meet."""
    # Ray adds a folder of 56 characters, and a socket's path has at most 97
    folder = Path(tempfile.mkdtemp(prefix="rd-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port("")),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port("")),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
    }


def require_told(endpoint: ServeSettings) -> None:
    """Refuse HAProxy on the loopback interface alone, which it cannot keep to.

    Raises:
        UsageError: `endpoint` names a loopback address.
    """
    if endpoint.haproxy and endpoint.host in LOOPBACK:
        raise UsageError(
            f"--haproxy: its pages of statistics and metrics listen on all interfaces, whatever "
            f"--host is, and --host is {endpoint.host}. Say --host 0.0.0.0 if others may reach "
            "this machine, or leave --haproxy out.",
            "haproxy",
        )
