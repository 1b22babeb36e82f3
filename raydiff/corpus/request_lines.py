"""Documents that are requests: bodies for OpenAI's endpoints, each with its own decoding."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from raydiff.config import CorpusSettings, Endpoint
from raydiff.corpus.asks import derived_seed
from raydiff.errors import UsageError
from raydiff.families import load_spec
from raydiff.openai.answers import Answer, Dialect
from raydiff.openai.prompts import PromptReader
from raydiff.openai.protocol import ChatBody, CompletionBody, GenerationBody, parse_body
from raydiff.request import Completion, GenerationRequest
from raydiff.text import Tokenizer

_BODIES: dict[Endpoint, tuple[Dialect, type[GenerationBody]]] = {
    "/v1/chat/completions": ("chat", ChatBody),
    "/v1/completions": ("completions", CompletionBody),
}


@dataclass(frozen=True, kw_only=True)
class RequestLine:
    """One body, understood."""

    answer: Answer
    requests: tuple[GenerationRequest, ...]

    def body(self, completions: list[Completion]) -> str:
        """What the endpoint would answer, as JSON; completions in the order of the requests."""
        body: dict[str, Any] = self.answer.whole(completions)
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class RequestReader:
    """Reads the bodies of one run. CPU work; no I/O."""

    prompts: PromptReader
    endpoint: Endpoint
    model: str
    """The served name, which answers carry."""
    fingerprint: str
    """What answers carry as `system_fingerprint`."""
    tenant: str
    seed: int
    """Of the run: bodies without a seed get one that follows from it and from their place, so
    that a retry repeats the same text."""

    @classmethod
    def of(cls, settings: CorpusSettings, served_name: str) -> RequestReader:
        """That of a run.

        Raises:
            ModelError: the model is unknown or malformed.
        """
        spec = replace(load_spec(settings.model), name=served_name)  # errors tell no paths
        tokenizer = Tokenizer.load(settings.model)
        return cls(
            prompts=PromptReader(spec=spec, tokenizer=tokenizer),
            endpoint=settings.task.endpoint,
            model=served_name,
            fingerprint=settings.task.fingerprint,
            tenant=settings.tenant,
            seed=settings.seed,
        )

    def read(self, text: str, request_id: str, identity: str) -> RequestLine:
        """The requests of a body, under ids that begin with `request_id`. `identity` tells the
        body from all others of the run.

        Raises:
            UsageError: the endpoint would refuse it; `param` is the field's path.
        """
        dialect, kind = _BODIES[self.endpoint]
        body = parse_body(kind, json.loads(text))
        if body.stream:
            raise UsageError("stream: expected false in a batch, got True. Leave it out.", "stream")
        key = f"{derived_seed(self.seed, identity):016x}"
        answer = Answer(
            dialect=dialect,
            model=self.model,
            body=body,
            tokenizer=self.prompts.tokenizer,
            fingerprint=self.fingerprint,
            lane="batch",
            key=key,
        )
        requests = self.prompts.requests(body, request_id, tenant=self.tenant, lane="batch")
        return RequestLine(
            answer=answer,
            requests=tuple(
                self._placed(request, f"{request_id}/{number}", f"{identity}/{number}")
                for number, request in enumerate(requests)
            ),
        )

    def _placed(self, request: GenerationRequest, name: str, identity: str) -> GenerationRequest:
        decoding = request.decoding
        if decoding.seed is None:
            decoding = replace(decoding, seed=derived_seed(self.seed, identity))
        return replace(request, request_id=name, decoding=decoding)
