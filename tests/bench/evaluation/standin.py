"""A stand-in for the app: what it writes depends on the document and on the setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from raydiff.errors import EngineError
from raydiff.request import Completion, GenerationRequest, Usage
from raydiff.text import Tokenizer

POISON = "poison"
"""A document with this word fails, alone."""


class StandIn:
    """A `Generator` that writes the document's first words: as many as there are steps."""

    def __init__(self, model: str | Path) -> None:
        self._tokenizer = Tokenizer.load(model)
        self.documents_by_steps: Counter[int | None] = Counter()
        self.order: list[int | None] = []
        self.down = False

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        if self.down:
            raise EngineError("the replica is down, and this text must not get out")
        self.order.append(requests[0].decoding.steps)
        return [self._complete(request) for request in requests]

    def _complete(self, request: GenerationRequest) -> Completion:
        steps = request.decoding.steps
        self.documents_by_steps[steps] += 1
        words = self._tokenizer.decode(request.prompt_ids[1:-1]).split()
        failed = POISON in words
        return Completion(
            request_id=request.request_id,
            text="" if failed else " ".join(words[:steps]),
            token_ids=(),
            finish_reason="error" if failed else "stop",
            usage=Usage(
                prompt_tokens=len(request.prompt_ids),
                completion_tokens=0 if failed else 5,
                forwards=steps or 1,
            ),
            error="it is poison" if failed else None,
        )
