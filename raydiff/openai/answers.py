"""The bodies of responses, in the two dialects of OpenAI's text endpoints."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from raydiff.openai.contents import Prompt
from raydiff.openai.logprobs import Pieces, chat_logprobs, completion_logprobs
from raydiff.openai.protocol import CompletionBody, GenerationBody
from raydiff.request import Completion, Lane, TokenLogprob, Usage
from raydiff.text import Tokenizer

Dialect = Literal["completions", "chat"]

_OBJECTS = {"completions": "text_completion", "chat": "chat.completion"}
_ID_PREFIXES = {"completions": "cmpl", "chat": "chatcmpl"}
_TIERS = {"interactive": "default", "batch": "flex"}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Writes the response to one request."""

    dialect: Dialect
    model: str
    body: GenerationBody
    tokenizer: Tokenizer
    fingerprint: str = ""
    lane: Lane = "interactive"
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The request's id."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def id(self) -> str:
        """The response's id, also the stem of its requests' ids."""
        return f"{_ID_PREFIXES[self.dialect]}-{self.key}"

    def whole(self, completions: Sequence[Completion]) -> dict[str, Any]:
        """The response without streaming: one choice per row, in order."""
        usage = total([c.usage for c in completions], self.body.n)
        return {
            **self.head(_OBJECTS[self.dialect]),
            "choices": [self._choice(i, c) for i, c in enumerate(completions)],
            "usage": usage_body(usage),
            "diffusion": diffusion_body(usage),
        }

    def head(self, kind: str) -> dict[str, Any]:
        """What every body of the response begins with."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "service_tier": _TIERS[self.lane],
        }

    def echo(self, index: int) -> str:
        """What stands before a row's text."""
        if not isinstance(self.body, CompletionBody) or not self.body.echo:
            return ""
        return self._text(self.body.prompt[index // self.body.n])

    def logprobs(self, items: Sequence[TokenLogprob], pieces: Pieces) -> dict[str, Any] | None:
        """The `logprobs` of some of a row's tokens, where they are asked for; `pieces` has seen
        those before them."""
        if self.body.top is None:
            return None
        write = chat_logprobs if self.dialect == "chat" else completion_logprobs
        return write(items, pieces)

    def _text(self, prompt: Prompt) -> str:
        return prompt if isinstance(prompt, str) else self.tokenizer.decode(prompt)

    def _choice(self, index: int, completion: Completion) -> dict[str, Any]:
        logprobs = self.logprobs(completion.logprobs or (), Pieces(self.tokenizer))
        end = {"finish_reason": completion.finish_reason, "logprobs": logprobs}
        if self.dialect == "chat":
            message = {"role": "assistant", "content": completion.text, "refusal": None}
            return {"index": index, "message": message, **end}
        return {"index": index, "text": self.echo(index) + completion.text, **end}


def total(usages: Sequence[Usage], n: int = 1) -> Usage:
    """The sum of the rows of one response. The `n` rows of a prompt, which stand together, read
    it once."""
    return Usage(
        prompt_tokens=sum(u.prompt_tokens for u in usages[::n]),
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
