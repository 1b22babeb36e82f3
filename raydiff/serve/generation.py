"""`/v1/completions` and `/v1/chat/completions`: the order of a request's steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raydiff.errors import DeadlineExceeded, EngineError
from raydiff.openai.answers import Answer, Dialect, total
from raydiff.openai.protocol import ChatBody, CompletionBody, GenerationBody, parse_body
from raydiff.openai.schemas import answer_schema, body_schema, event_schema
from raydiff.request import Completion, GenerationRequest, Lane
from raydiff.serve.access import Access, Caller
from raydiff.serve.bodies import THREAD_BYTES, deadline_s, read_json
from raydiff.serve.deadlines import all_within, within
from raydiff.serve.documentation import answer, operation
from raydiff.serve.request_ids import request_id_of
from raydiff.serve.served import ServedModel, ServedModels
from raydiff.serve.streams import EventStream, merged


@dataclass(frozen=True, kw_only=True)
class TextRoutes:
    """Generates. Who calls comes first, then the body, the model, its tokens, and the limits."""

    models: ServedModels
    access: Access
    request_timeout_s: float
    max_timeout_s: float
    max_body_bytes: int

    def add_to(self, app: Starlette) -> None:
        app.router.add_route("/v1/completions", self.completions, methods=["POST"])
        app.router.add_route("/v1/chat/completions", self.chat_completions, methods=["POST"])

    def paths(self) -> Mapping[str, Any]:
        return {
            "/v1/completions": {"post": self._documented("completions", CompletionBody)},
            "/v1/chat/completions": {"post": self._documented("chat", ChatBody)},
        }

    def _documented(self, dialect: Dialect, kind: type[GenerationBody]) -> dict[str, Any]:
        text = (
            "The answer; with `stream`, server-sent events of chunks, closed by `[DONE]`. A stream "
            "that breaks ends with an event that has `error`, and no `[DONE]`."
        )
        done = answer(text, answer_schema(dialect))
        done["content"]["text/event-stream"] = {"schema": event_schema(dialect)}
        name = "create_chat_completion" if dialect == "chat" else "create_completion"
        return operation(
            name,
            "Answers a chat" if dialect == "chat" else "Continues or summarises texts",
            {"200": done},
            body=body_schema(kind),
            refusals=(404, 408, 413, 429),
            max_deadline_s=self.max_timeout_s,
        )

    async def completions(self, request: Request) -> Response:
        """`POST /v1/completions`."""
        return await self._serve(request, "completions", CompletionBody)

    async def chat_completions(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        return await self._serve(request, "chat", ChatBody)

    async def _serve(
        self, request: Request, dialect: Dialect, kind: type[GenerationBody]
    ) -> Response:
        started_s = time.monotonic()
        caller = await self.access.caller(request)
        timeout_s = deadline_s(request, self.request_timeout_s, self.max_timeout_s)
        raw, size = await read_json(request, self.max_body_bytes)
        body = parse_body(kind, raw)
        model = self.models.named(body.model, caller)
        request.state.model = model.name
        lane = lane_of(body, caller, model)
        answer = Answer(
            dialect=dialect,
            model=model.name,
            key=request_id_of(request),
            fingerprint=model.fingerprint,
            lane=lane,
            body=body,
            tokenizer=model.reader.tokenizer,
        )
        requests = await _read(model, body, answer, caller, size)
        left_s = timeout_s - (time.monotonic() - started_s)
        if left_s <= 0:
            raise DeadlineExceeded(f"The request was not done within {timeout_s:.3g} s.")
        work = _Work(model=model, requests=requests, answer=answer, caller=caller)
        serve = self._streamed if body.stream else self._whole
        return await serve(request, work, left_s)

    async def _whole(self, request: Request, work: _Work, timeout_s: float) -> Response:
        async with self.access.admit(work.caller, work.model.name, work.requests) as admission:
            call = work.model.replicas.generate(work.requests, timeout_s=timeout_s)
            completions = await within(call, timeout_s)
            for completion in completions:
                admission.spent(completion.usage)
            _check(completions)
            body = work.answer.whole(completions)
            request.state.usage = total([c.usage for c in completions], work.answer.body.n)
            return JSONResponse(body, headers=dict(admission.headers))

    async def _streamed(self, request: Request, work: _Work, timeout_s: float) -> Response:
        """Wait for the first event, so that a refusal still has a status line of its own."""
        async with AsyncExitStack() as stack:
            admission = await stack.enter_async_context(
                self.access.admit(work.caller, work.model.name, work.requests)
            )
            streams = [work.model.replicas.stream(r, timeout_s=timeout_s) for r in work.requests]
            generator = cast("Any", all_within(merged(streams), timeout_s))
            rows = await stack.enter_async_context(aclosing(generator))
            first = await anext(rows)
            return EventStream(
                work.answer,
                first,
                rows,
                admission=admission,
                held=stack.pop_all(),
                state=request.state,
                timeout_s=timeout_s,
            )


@dataclass(frozen=True, kw_only=True)
class _Work:
    """A request that is ready to run."""

    model: ServedModel
    requests: Sequence[GenerationRequest]
    answer: Answer
    caller: Caller


def lane_of(body: GenerationBody, caller: Caller, model: ServedModel) -> Lane:
    """Batch for a model of batch work; else the lane that the key is bound to, else what the body
    asks for: `flex` is batch work."""
    if model.batch_only:
        return "batch"
    if caller.lane is not None:
        return caller.lane
    return "batch" if body.service_tier == "flex" else "interactive"


async def _read(
    model: ServedModel, body: GenerationBody, answer: Answer, caller: Caller, size: int
) -> list[GenerationRequest]:
    def read() -> list[GenerationRequest]:
        return model.reader.requests(body, answer.id, tenant=caller.key_id, lane=answer.lane)

    return read() if size < THREAD_BYTES else await asyncio.to_thread(read)


def _check(completions: Sequence[Completion]) -> None:
    for completion in completions:
        if completion.finish_reason == "error":
            raise EngineError(completion.error or "The engine failed.")
