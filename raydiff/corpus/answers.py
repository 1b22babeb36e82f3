"""What became of a document: an answer or a failure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from raydiff.corpus.commit import Totals
from raydiff.request import FinishReason, Usage


@dataclass(frozen=True, kw_only=True)
class Summary:
    """An answered document. Token counts and forwards add up all its requests."""

    text: str
    finish_reason: FinishReason
    totals: Totals
    chunks: int
    truncated: bool = False
    """Whether a part of the document went into no prompt, or a summary of one was shortened."""
    probability: float | None = None
    """Of a label: what its chunks' labels say for it, see `merging.elected`."""

    def to_bytes(self) -> bytes:
        """As small as it is readable: results of all documents of a run are kept at once."""
        cost = self.totals
        numbers = (cost.prompt_tokens, cost.completion_tokens, cost.forwards, self.chunks)
        fields = (self.text, self.finish_reason, *numbers, int(self.truncated), self.probability)
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Summary:
        """The inverse of `to_bytes`."""
        text, finish_reason, *numbers, truncated, probability = json.loads(content)
        prompt, completion, forwards, chunks = numbers
        totals = Totals(prompt_tokens=prompt, completion_tokens=completion, forwards=forwards)
        return cls(
            text=text,
            finish_reason=finish_reason,
            totals=totals,
            chunks=chunks,
            truncated=bool(truncated),
            probability=probability,
        )


def cost_of(usage: Usage) -> Totals:
    """What one request cost."""
    return Totals(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        forwards=usage.forwards,
    )


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failed document."""

    error_type: str
    message: str
    attempts: int
    by_service: bool = False
    """Whether the call as a whole failed, rather than the model on this document."""
