"""The bodies of responses, in the two dialects of OpenAI's text endpoints."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from raydiff.request import Completion, Event, Usage

Dialect = Literal["completions", "chat"]

_OBJECTS = {"completions": "text_completion", "chat": "chat.completion"}
_CHUNK_OBJECTS = {"completions": "text_completion", "chat": "chat.completion.chunk"}
_ID_PREFIXES = {"completions": "cmpl", "chat": "chatcmpl"}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Writes the response to one request: whole, or as chunks."""

    dialect: Dialect
    model: str
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def id(self) -> str:
        """The response's id, also the stem of its requests' ids."""
        return f"{_ID_PREFIXES[self.dialect]}-{self.key}"

    def whole(self, completions: Sequence[Completion]) -> dict[str, Any]:
        """The response without streaming: one choice per prompt, in order."""
        choices = [self._choice(i, c) for i, c in enumerate(completions)]
        usage = total([c.usage for c in completions])
        return {
            **self._head(_OBJECTS[self.dialect]),
            "choices": choices,
            "usage": usage_body(usage),
            "diffusion": diffusion_body(usage),
        }

    def opening(self, index: int) -> Iterator[dict[str, Any]]:
        """Chunks before a choice's first text."""
        if self.dialect == "chat":
            delta = {"role": "assistant", "content": ""}
            yield self._chunk({"index": index, "delta": delta, "finish_reason": None})

    def chunks(self, index: int, event: Event) -> Iterator[dict[str, Any]]:
        """Chunks of one event of a choice."""
        if event.text:
            yield self._chunk(self._delta(index, event.text, None))
        if event.completion is not None:
            last = self._delta(index, "", event.completion.finish_reason)
            yield {**self._chunk(last), "diffusion": diffusion_body(event.completion.usage)}

    def closing(self, usage: Usage) -> dict[str, Any]:
        """The chunk with the usage of the whole response."""
        chunk = self._head(_CHUNK_OBJECTS[self.dialect])
        return {**chunk, "choices": [], "usage": usage_body(usage)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return {**self._head(_CHUNK_OBJECTS[self.dialect]), "choices": [choice]}

    def _choice(self, index: int, completion: Completion) -> dict[str, Any]:
        end = {"finish_reason": completion.finish_reason, "logprobs": None}
        if self.dialect == "chat":
            message = {"role": "assistant", "content": completion.text, "refusal": None}
            return {"index": index, "message": message, **end}
        return {"index": index, "text": completion.text, **end}

    def _delta(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        if self.dialect == "chat":
            delta = {"content": text} if text else {}
            return {"index": index, "delta": delta, "finish_reason": finish_reason}
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


def total(usages: Sequence[Usage]) -> Usage:
    """The sum of the rows of one response."""
    return Usage(
        prompt_tokens=sum(u.prompt_tokens for u in usages),
        completion_tokens=sum(u.completion_tokens for u in usages),
        forwards=sum(u.forwards for u in usages),
    )


def usage_body(usage: Usage) -> dict[str, int]:
    """OpenAI's `usage` object."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def diffusion_body(usage: Usage) -> dict[str, float]:
    """The `diffusion` object: row forwards, and output tokens per one of them."""
    return {
        "forwards": usage.forwards,
        "tokens_per_forward": round(usage.tokens_per_forward, 4),
    }
