"""Drills against a real S3 server behind a proxy that can be away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ..storage.proxy import FaultProxy
from ..storage.server import S3Server
from .faults import OUTAGE_S, Kind, Missed
from .outputs import S3Output
from .runs import Run


@dataclass(frozen=True)
class Store:
    """The server, the proxy before it, and a bucket."""

    server: S3Server
    proxy: FaultProxy
    bucket: str

    def output(self, prefix: str) -> S3Output:
        """A run directory, seen past the proxy."""
        return S3Output(self.server.client(), self.bucket, prefix)

    def kinds(self) -> tuple[Kind, ...]:
        """The drills in which the store fails."""
        return (
            self._kind("s3-outage", self._outage),
            self._kind("s3-faults", self._faults),
        )

    def _kind(self, name: str, strike: Callable[[Run], None]) -> Kind:
        storage = {"endpoint_url": self.proxy.url, "region": "us-east-1"}
        return Kind(name=name, strike=strike, where="s3", settings={"storage": storage})

    def _outage(self, run: Run) -> None:
        run.start()
        if not run.random_moment():
            raise Missed
        with self.proxy.outage(hangs=run.rng.random() < 0.5):
            time.sleep(OUTAGE_S)
        run.finish()

    def _faults(self, run: Run) -> None:
        self.proxy.slow_down = run.rng.uniform(0.05, 0.3)
        self.proxy.cut_body = run.rng.uniform(0.0, 0.2)
        self.proxy.lose_answer = run.rng.uniform(0.0, 0.2)
        try:
            run.start()
            run.finish()
        finally:
            self.proxy.heal()
