"""`GET /v1/models`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raydiff.serve.access import Access
from raydiff.serve.documentation import answer, operation
from raydiff.serve.served import ServedModels

_INTEGER = {"type": "integer"}
_MODEL = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "model"},
        "created": _INTEGER,
        "owned_by": {"type": "string"},
        "family": {"type": "string"},
        "context_length": {"type": ["integer", "null"]},
        "max_prompt_tokens": _INTEGER,
        "max_new_tokens": _INTEGER,
        "block_length": _INTEGER,
        "policies": {"type": "array", "items": {"type": "string"}},
        "chat_template": {"type": "boolean"},
        "simulated": {"type": "boolean"},
    },
}
_LIST = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": _MODEL}},
}


@dataclass(frozen=True, kw_only=True)
class ModelRoutes:
    """Lists the models that a caller may use."""

    models: ServedModels
    access: Access

    def add_to(self, app: Starlette) -> None:
        app.router.add_route("/v1/models", self.all, methods=["GET"])
        app.router.add_route("/v1/models/{name:path}", self.one, methods=["GET"])

    def paths(self) -> Mapping[str, Any]:
        name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        every = operation("list_models", "The models", {"200": answer("The models.", _LIST)})
        one = operation(
            "retrieve_model", "One model", {"200": answer("The model.", _MODEL)}, refusals=(404,)
        )
        one["parameters"] = [*one["parameters"], name]
        return {"/v1/models": {"get": every}, "/v1/models/{name}": {"get": one}}

    async def all(self, request: Request) -> Response:
        """`GET /v1/models`."""
        caller = await self.access.caller(request)
        data = [model.body() for model in self.models.of(caller)]
        return JSONResponse({"object": "list", "data": data})

    async def one(self, request: Request) -> Response:
        """`GET /v1/models/{name}`."""
        caller = await self.access.caller(request)
        return JSONResponse(self.models.named(request.path_params["name"], caller).body())
