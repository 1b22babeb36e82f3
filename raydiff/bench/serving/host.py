"""A process that hosts an app, apart from the load on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from raydiff.bench.serving.remote import Handler
from raydiff.config import AppSettings, ModelSettings, ServeSettings

DESCRIBE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Hosted:
    """The app to host."""

    model: ModelSettings
    address: str | None = None
    """`RAY_ADDRESS` of the process; `None` leaves it as it is."""
    haproxy: bool = False


@contextmanager
def host(hosted: Hosted) -> Iterator[Handler]:
    """Answers "app" with the RunningApp, and "work" with the Work that its replicas did so far."""
    if hosted.address is not None:
        os.environ["RAY_ADDRESS"] = hosted.address

    from raydiff.client import Client
    from raydiff.engine.counts import Work
    from raydiff.launch import running_app

    settings = AppSettings(models=(hosted.model,))
    endpoint = ServeSettings(port=0, haproxy=hosted.haproxy)
    with running_app(settings, endpoint, reuse=False) as app:
        client = Client.connect(hosted.model.served_name, app.app_name)

        def answer(message: str) -> Any:
            if message == "app":
                return app
            described = asyncio.run(client.describe(timeout_s=DESCRIBE_S))
            return sum((Work(**replica["work"]) for replica in described), Work())

        yield answer
