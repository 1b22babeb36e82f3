"""The replica of the drills: the real one, but slow, and killed by one kind of document."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence

from ray import serve
from ray.serve import Application

from raydiff.client import Refusal
from raydiff.config import EngineSettings, ModelSettings, deployment_name
from raydiff.request import Completion, GenerationRequest
from raydiff.serve.app import GATEWAY
from raydiff.serve.replica import Replica
from raydiff.text import Tokenizer

from .corpus import KILLS_REPLICA

DELAY_S = 0.5
"""Each call waits this long, so that a small corpus on a small model takes a while."""
SLOT = "replica_slot"
"""Resource of which each node has one, so that each has one replica."""


class DrillReplica(Replica):
    """Dies of a document that says so."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        self._tokenizer = Tokenizer.load(settings.model)

    async def generate(
        self, requests: Sequence[GenerationRequest], timeout_s: float
    ) -> list[Completion] | Refusal:
        """As the real one."""
        await asyncio.sleep(DELAY_S)
        for request in requests:
            if KILLS_REPLICA in self._tokenizer.decode(request.prompt_ids):
                os.kill(os.getpid(), signal.SIGKILL)
        return await super().generate(requests, timeout_s)


class Front:
    """Stands where the gateway would: the drills have no HTTP requests."""

    def __init__(self, replicas: object) -> None:
        self._replicas = replicas


def drill_app(model: str, replicas: int) -> Application:
    """The app that drivers find."""
    settings = ModelSettings(
        model=model,
        dtype="fp32",  # in which a text does not hang on what is batched beside it
        min_replicas=replicas,
        max_replicas=replicas,
        engine=EngineSettings(threads=1, max_rows=16),
    )
    deployment = serve.deployment(
        DrillReplica,
        name=deployment_name(settings.served_name),
        num_replicas=replicas,
        ray_actor_options={"num_cpus": 0.1, "resources": {SLOT: 1}},
        max_ongoing_requests=1000,
        health_check_period_s=5.0,
        health_check_timeout_s=15.0,
        graceful_shutdown_timeout_s=1.0,
    )
    front = serve.deployment(Front, name=GATEWAY, ray_actor_options={"num_cpus": 0})
    return front.bind(deployment.bind(settings))
