"""`GET /health`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raydiff.errors import ClusterError
from raydiff.serve.documentation import answer, operation
from raydiff.serve.served import ServedModel, ServedModels

HEALTH_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class HealthRoutes:
    """Tells load balancers and probes whether the models are there; open to everyone."""

    models: ServedModels

    def add_to(self, app: Starlette) -> None:
        app.router.add_route("/health", self.health, methods=["GET"])

    def paths(self) -> Mapping[str, Any]:
        schema = {
            "type": "object",
            "required": ["status", "replicas"],
            "properties": {
                "status": {"const": "ok"},
                "replicas": {
                    "type": "object",
                    "description": "Replicas that answered, by model.",
                    "additionalProperties": {"type": "integer"},
                },
            },
        }
        answers = {"200": answer("All replicas of every model answer.", schema)}
        summary = "Whether every model has its replicas"
        return {"/health": {"get": operation("health", summary, answers, refusals=(503,))}}

    async def health(self, _: Request) -> Response:
        """`GET /health`: 200 when all replicas of every model answer."""
        models = list(self.models)
        counts = await asyncio.gather(*map(_answering, models))
        replicas = {model.name: count for model, count in zip(models, counts, strict=True)}
        return JSONResponse({"status": "ok", "replicas": replicas})


async def _answering(model: ServedModel) -> int:
    replicas = await model.replicas.describe(timeout_s=HEALTH_TIMEOUT_S)
    if len(replicas) < model.min_replicas:
        raise ClusterError(
            f"model {model.name!r}: expected {model.min_replicas} replicas, "
            f"got {len(replicas)} that answer."
        )
    return len(replicas)
