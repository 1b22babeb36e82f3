"""`/tokenize` and `/detokenize`, in vLLM's shapes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raydiff.openai.protocol import parse_body
from raydiff.openai.schemas import body_schema
from raydiff.openai.tokens import DetokenizeBody, TokenizeBody, TokenReader
from raydiff.serve.access import Access
from raydiff.serve.bodies import THREAD_BYTES, read_json
from raydiff.serve.documentation import answer, operation
from raydiff.serve.served import ServedModels

_TOKENS = {
    "type": "object",
    "required": ["count", "max_model_len", "tokens", "token_strs"],
    "properties": {
        "count": {"type": "integer"},
        "max_model_len": {"type": "integer"},
        "tokens": {"type": "array", "items": {"type": "integer"}},
        "token_strs": {"type": ["array", "null"], "items": {"type": "string"}},
    },
}
_TEXT = {
    "type": "object",
    "required": ["prompt"],
    "properties": {"prompt": {"type": "string"}},
}


@dataclass(frozen=True, kw_only=True)
class TokenRoutes:
    """Texts to tokens and back, as prompts are read."""

    models: ServedModels
    access: Access
    max_body_bytes: int

    def add_to(self, app: Starlette) -> None:
        app.router.add_route("/tokenize", self.tokenize, methods=["POST"])
        app.router.add_route("/detokenize", self.detokenize, methods=["POST"])

    def paths(self) -> Mapping[str, Any]:
        refusals = (404, 413)
        to = operation(
            "tokenize",
            "The tokens of a prompt or a chat",
            {"200": answer("Its tokens, as the model would get them.", _TOKENS)},
            body=body_schema(TokenizeBody),
            refusals=refusals,
        )
        back = operation(
            "detokenize",
            "The text of tokens",
            {"200": answer("Their text.", _TEXT)},
            body=body_schema(DetokenizeBody),
            refusals=refusals,
        )
        return {"/tokenize": {"post": to}, "/detokenize": {"post": back}}

    async def tokenize(self, request: Request) -> Response:
        """`POST /tokenize`."""
        caller = await self.access.caller(request)
        raw, size = await read_json(request, self.max_body_bytes)
        body = parse_body(TokenizeBody, raw)
        reader = TokenReader(self.models.named(body.model, caller).reader)
        if size < THREAD_BYTES:
            return JSONResponse(reader.tokens(body))
        return JSONResponse(await asyncio.to_thread(reader.tokens, body))

    async def detokenize(self, request: Request) -> Response:
        """`POST /detokenize`."""
        caller = await self.access.caller(request)
        raw, _ = await read_json(request, self.max_body_bytes)
        body = parse_body(DetokenizeBody, raw)
        reader = TokenReader(self.models.named(body.model, caller).reader)
        return JSONResponse(await asyncio.to_thread(reader.text, body))
