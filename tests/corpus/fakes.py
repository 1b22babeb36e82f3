"""Stand-ins for the model: summaries that are a pure function of the request."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from raydiff.errors import EngineError, ReplicaDied
from raydiff.request import Completion, GenerationRequest, Usage
from raydiff.text import Tokenizer

POISON = "POISON"
"""A document with this word fails, alone, whenever it is tried."""
CRASH = "CRASH"
"""A replica that is given a document with this word dies."""
BROKEN = "BROKEN"
"""A call that carries a document with this word fails as a whole."""


def fake_summary(text: str, seed: int) -> str:
    """What the stand-ins answer: the first word, the length and the seed."""
    words = text.split()
    return f"{words[0] if words else ''} {len(text)} {seed}"


def fake_completion(request: GenerationRequest, text: str) -> Completion:
    poisoned = POISON in text
    summary = "" if poisoned else fake_summary(text, request.decoding.seed or 0)
    return Completion(
        request_id=request.request_id,
        text=summary,
        token_ids=(),
        finish_reason="error" if poisoned else "stop",
        usage=Usage(
            prompt_tokens=len(request.prompt_ids),
            completion_tokens=0 if poisoned else 5,
            forwards=0 if poisoned else 2,
        ),
        error="the document is poison" if poisoned else None,
    )


class FakeGenerator:
    """A `Generator` in this process."""

    def __init__(self, model: str | Path, delay_s: float = 0.0) -> None:
        self.tokenizer = Tokenizer.load(model)
        self.calls: list[list[GenerationRequest]] = []
        self.down = False
        self.in_flight = 0
        self.most_in_flight = 0
        self._delay_s = delay_s

    @property
    def sent(self) -> Counter[str]:
        """How often each request id was sent."""
        return Counter(request.request_id for call in self.calls for request in call)

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        self.calls.append(list(requests))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self._delay_s)
        finally:
            self.in_flight -= 1
        if self.down:
            raise EngineError("the replica is down")
        texts = [self.tokenizer.decode(request.prompt_ids[1:-1]) for request in requests]
        if any(CRASH in text for text in texts):
            raise ReplicaDied("the replica crashed")
        if any(BROKEN in text for text in texts):
            raise EngineError("the call failed")
        return [fake_completion(r, text) for r, text in zip(requests, texts, strict=True)]


class FakeReplica:
    """A Serve replica with the real one's `generate`; it logs every document it is asked for.

    The log is a file, because the replica is another process. While a file `down` lies beside
    it, every call fails.
    """

    def __init__(self, model: str, log: str, delay_s: float = 0.0) -> None:
        self._tokenizer = Tokenizer.load(model)
        self._log = Path(log)
        self._delay_s = delay_s

    async def generate(
        self, requests: Sequence[GenerationRequest], timeout_s: float
    ) -> list[Completion]:
        texts = [self._tokenizer.decode(request.prompt_ids[1:-1]) for request in requests]
        with self._log.open("a") as stream:
            stream.writelines(f"{request.request_id}\n" for request in requests)
        await asyncio.sleep(self._delay_s)
        if self._log.with_name("down").exists():
            raise EngineError("the replica is down")
        if any(CRASH in text for text in texts):
            os._exit(1)
        return [fake_completion(r, text) for r, text in zip(requests, texts, strict=True)]

    async def describe(self) -> dict[str, object]:
        """As a replica that does not say what it takes."""
        return {"requests": 0}
