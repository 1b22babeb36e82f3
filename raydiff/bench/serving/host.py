"""A process that hosts an app, apart from the load on it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raydiff.bench.serving.remote import Handler
from raydiff.config import AppSettings, ModelSettings, ServeSettings

DESCRIBE_S = 30.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Hosted:
    """The app to host."""

    model: ModelSettings
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set before Ray starts."""


@contextmanager
def host(hosted: Hosted) -> Iterator[Handler]:
    """Answers "app" with the RunningApp, and "work" with the Work that its replicas did so far."""
    # Serve reads these when it is imported, which must not have happened yet.
    os.environ.update(hosted.environment)

    from raydiff.client import Client
    from raydiff.engine.counts import Work
    from raydiff.launch import running_app

    settings = AppSettings(models=(hosted.model,))
    with running_app(settings, ServeSettings(port=0), reuse=False) as app:
        client = Client.connect(hosted.model.served_name, app.app_name)

        def answer(message: str) -> Any:
            if message == "app":
                return app
            described = asyncio.run(client.describe(timeout_s=DESCRIBE_S))
            return sum((Work(**replica["work"]) for replica in described), Work())

        yield answer


@contextmanager
def haproxy_environment() -> Iterator[dict[str, str]]:
    """Variables that make a new cluster's Serve listen with HAProxy, beside others of this machine.

    Its ports and files are fixed by default: two of them would meet.
    """
    from raydiff.launch.ports import free_port

    with tempfile.TemporaryDirectory(prefix="raydiff-haproxy-") as name:
        folder = Path(name)
        yield {
            "RAY_ADDRESS": "local",
            "RAY_SERVE_ENABLE_HA_PROXY": "1",
            "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port(LOOPBACK)),
            "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port(LOOPBACK)),
            "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
            "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
            "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
            "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        }
