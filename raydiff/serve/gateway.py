"""The gateway: OpenAI's text endpoints in front of the replicas. Loads no torch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, cast

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from ray.serve.handle import DeploymentHandle
from starlette.exceptions import HTTPException

from raydiff.client import Client
from raydiff.config import AppSettings, ModelSettings
from raydiff.errors import (
    ClusterError,
    DeadlineExceeded,
    EngineError,
    ModelError,
    RaydiffError,
    UsageError,
    invalid,
)
from raydiff.families import load_spec
from raydiff.openai.answers import Answer, Dialect
from raydiff.openai.problems import HttpRefusal, Problem, problem_of
from raydiff.openai.prompts import PromptReader
from raydiff.openai.protocol import ChatBody, CompletionBody, GenerationBody, parse_body
from raydiff.request import Completion, Event, GenerationRequest
from raydiff.retries import RetryPolicy
from raydiff.serve.bodies import THREAD_BYTES, deadline_s, read_json
from raydiff.serve.streams import EventStream, merged
from raydiff.text import Tokenizer

HEALTH_TIMEOUT_S = 5.0


class Replicas(Protocol):
    """What the gateway needs of a model's replicas; `Client` is the real one."""

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]: ...

    def stream(self, request: GenerationRequest, *, timeout_s: float) -> AsyncIterator[Event]: ...

    async def describe(self, *, timeout_s: float) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """One model behind the gateway."""

    name: str
    reader: PromptReader
    replicas: Replicas
    min_replicas: int
    created: int

    def body(self) -> dict[str, Any]:
        """OpenAI's model object, with the limits a client must know."""
        spec = self.reader.spec
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "raydiff",
            "family": spec.family,
            "context_length": spec.context_length,
            "max_prompt_tokens": spec.max_prompt_tokens,
            "max_new_tokens": spec.max_new_tokens,
            "block_length": spec.block_length,
            "policies": list(spec.policies()),
            "chat_template": self.reader.tokenizer.has_chat_template,
        }


class TextApi:
    """The endpoints, without Serve."""

    def __init__(
        self, models: Mapping[str, ServedModel], *, request_timeout_s: float, max_body_bytes: int
    ) -> None:
        self._models = dict(models)
        self._request_timeout_s = request_timeout_s
        self._max_body_bytes = max_body_bytes

    def app(self) -> FastAPI:
        """The ASGI application."""
        app = FastAPI(openapi_url=None, redirect_slashes=False)
        app.add_api_route("/v1/completions", self.completions, methods=["POST"])
        app.add_api_route("/v1/chat/completions", self.chat_completions, methods=["POST"])
        app.add_api_route("/v1/models", self.models, methods=["GET"])
        app.add_api_route("/v1/models/{name:path}", self.one_model, methods=["GET"])
        app.add_api_route("/health", self.health, methods=["GET"])
        for kind in (RaydiffError, HttpRefusal, Exception):
            app.add_exception_handler(kind, _answer_error)
        app.add_exception_handler(HTTPException, _answer_http_exception)
        return app

    async def completions(self, request: Request) -> Response:
        """`POST /v1/completions`."""
        return await self._serve(request, "completions", CompletionBody)

    async def chat_completions(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        return await self._serve(request, "chat", ChatBody)

    async def models(self) -> Response:
        """`GET /v1/models`."""
        data = [model.body() for model in self._models.values()]
        return JSONResponse({"object": "list", "data": data})

    async def one_model(self, name: str) -> Response:
        """`GET /v1/models/{name}`."""
        return JSONResponse(self._model(name).body())

    async def health(self) -> Response:
        """`GET /health`: 200 when all replicas of every model answer."""
        counts = await asyncio.gather(*(_answering(model) for model in self._models.values()))
        replicas = dict(zip(self._models, counts, strict=True))
        return JSONResponse({"status": "ok", "replicas": replicas})

    async def _serve(
        self, request: Request, dialect: Dialect, kind: type[GenerationBody]
    ) -> Response:
        started_s = time.monotonic()
        timeout_s = deadline_s(request, self._request_timeout_s)
        raw, size = await read_json(request, self._max_body_bytes)
        body = parse_body(kind, raw)
        model = self._model(body.model)
        answer = Answer(dialect=dialect, model=model.name)
        requests = await _read(model.reader, body, answer.id, size)
        left_s = timeout_s - (time.monotonic() - started_s)
        if left_s <= 0:
            raise DeadlineExceeded(f"The request was not done within {timeout_s:.3g} s.")
        if body.stream:
            return await _streamed(model, requests, answer, body.include_usage, left_s)
        completions = await model.replicas.generate(requests, timeout_s=left_s)
        for completion in completions:
            if completion.finish_reason == "error":
                raise EngineError(completion.error or "The engine failed.")
        return JSONResponse(answer.whole(completions))

    def _model(self, name: str | None) -> ServedModel:
        if name is None:
            if len(self._models) == 1:
                return next(iter(self._models.values()))
            message = "model: required, but missing, because several models are served."
            raise UsageError(message, "model")
        model = self._models.get(name)
        if model is None:
            names = ", ".join(sorted(self._models))
            raise ModelError(invalid("model", expected=f"one of {names}", got=name))
        return model


class Gateway:
    """The Serve deployment's class; Serve asks it for its ASGI application."""

    def __init__(self, settings: AppSettings, handles: Mapping[str, DeploymentHandle]) -> None:
        models = {
            model.served_name: served_model(model, handles[model.served_name])
            for model in settings.models
        }
        self._api = TextApi(
            models,
            request_timeout_s=settings.request_timeout_s,
            max_body_bytes=settings.max_body_bytes,
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        return self._api.app()


def served_model(settings: ModelSettings, handle: DeploymentHandle) -> ServedModel:
    """Load what the gateway needs of a model: its spec and tokenizer."""
    reader = PromptReader(spec=load_spec(settings.model), tokenizer=Tokenizer.load(settings.model))
    return ServedModel(
        name=settings.served_name,
        reader=reader,
        replicas=Client(handle, RetryPolicy(overloaded=False)),
        min_replicas=settings.min_replicas,
        created=int(time.time()),
    )


async def _read(
    reader: PromptReader, body: GenerationBody, request_id: str, size: int
) -> list[GenerationRequest]:
    if size < THREAD_BYTES:
        return reader.requests(body, request_id)
    return await asyncio.to_thread(reader.requests, body, request_id)


async def _streamed(
    model: ServedModel,
    requests: Sequence[GenerationRequest],
    answer: Answer,
    include_usage: bool,
    timeout_s: float,
) -> Response:
    """Wait for the first event, so that a refusal still has a status line of its own."""
    streams = [model.replicas.stream(request, timeout_s=timeout_s) for request in requests]
    rows = merged(streams)
    try:
        first = await anext(rows)
    except BaseException:
        async with aclosing(cast("Any", rows)):
            raise
    return EventStream(answer, first, rows, include_usage)


async def _answering(model: ServedModel) -> int:
    replicas = await model.replicas.describe(timeout_s=HEALTH_TIMEOUT_S)
    if len(replicas) < model.min_replicas:
        raise ClusterError(
            f"model {model.name!r}: expected {model.min_replicas} replicas, "
            f"got {len(replicas)} that answer."
        )
    return len(replicas)


async def _answer_error(_: Request, error: Exception) -> Response:
    return _response(problem_of(error))


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        message, code = f"{path}: no such path.", "not_found"
    else:
        message, code = f"{request.method} {path}: {error.detail}.", "method_not_allowed"
    response = _response(Problem(status=error.status_code, message=message, code=code))
    response.headers.update(error.headers or {})
    return response


def _response(problem: Problem) -> Response:
    return JSONResponse(problem.body(), status_code=problem.status, headers=problem.headers())
