"""The chunks of a streamed response."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from raydiff.openai.answers import Answer, diffusion_body, total, usage_body
from raydiff.openai.logprobs import Pieces
from raydiff.request import Completion, Event, Usage

_OBJECTS = {"completions": "text_completion", "chat": "chat.completion.chunk"}
_NOTHING = Usage(prompt_tokens=0, completion_tokens=0, forwards=0)


@dataclass
class _Row:
    """What a row has said."""

    pieces: Pieces
    usage: Usage = field(default=_NOTHING)


class ChunkWriter:
    """Writes the events of a response's rows as chunks, in the order they come."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._body = answer.body
        self._rows: dict[int, _Row] = {}

    @property
    def usage(self) -> Usage:
        """Of all rows so far. The `n` rows of a prompt read it once."""
        prompts = {i // self._body.n: row.usage.prompt_tokens for i, row in self._rows.items()}
        rows = total([row.usage for row in self._rows.values()])
        return replace(rows, prompt_tokens=sum(prompts.values()))

    def chunks(self, index: int, event: Event) -> Iterator[dict[str, Any]]:
        """Chunks of one event of a row."""
        if index not in self._rows:
            self._rows[index] = _Row(Pieces(self._answer.tokenizer))
            yield from self._opening(index)
        row = self._rows[index]
        row.usage = event.usage or row.usage
        if event.completion is not None:
            row.usage = event.completion.usage
        if self._body.diffusing:
            yield from self._canvas(index, event)
        else:
            yield from self._new_text(index, row, event)

    def closing(self) -> Iterator[dict[str, Any]]:
        """The chunk after the last row's end, where the usage is asked for."""
        if self._body.include_usage:
            yield {**self._head(), "choices": [], "usage": usage_body(self.usage)}

    def _opening(self, index: int) -> Iterator[dict[str, Any]]:
        if self._answer.dialect == "chat":
            delta = {"role": "assistant", "content": ""}
            yield self._chunk({"index": index, "delta": delta, **_OPEN})
        elif echo := self._answer.echo(index):
            yield self._chunk(self._choice(index, echo, None, None))

    def _new_text(self, index: int, row: _Row, event: Event) -> Iterator[dict[str, Any]]:
        logprobs = self._answer.logprobs(event.logprobs, row.pieces) if event.logprobs else None
        if event.text or logprobs:
            yield self._chunk(self._choice(index, event.text, logprobs, None))
        if event.completion is not None:
            last = self._choice(index, "", None, event.completion.finish_reason)
            yield self._last(last, event.completion)

    def _canvas(self, index: int, event: Event) -> Iterator[dict[str, Any]]:
        """The whole canvas in place of new text: final is only the chunk that says why it
        ended."""
        if event.completion is not None:
            text, reason = event.completion.text, event.completion.finish_reason
            last = self._choice(index, text, None, reason)
            yield self._last(last, event.completion, {"final": True})
        elif event.snapshot is not None:
            chunk = self._chunk(self._choice(index, event.snapshot, None, None))
            yield {**chunk, "diffusion": {"final": False}}

    def _last(
        self, choice: dict[str, Any], completion: Completion, final: dict[str, bool] | None = None
    ) -> dict[str, Any]:
        diffusion = {**diffusion_body(completion.usage), **(final or {})}
        return {**self._chunk(choice), "diffusion": diffusion}

    def _head(self) -> dict[str, Any]:
        return self._answer.head(_OBJECTS[self._answer.dialect])

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = {**self._head(), "choices": [choice]}
        if self._body.continuous_usage:
            chunk["usage"] = usage_body(self.usage)
        elif self._body.include_usage:
            chunk["usage"] = None
        return chunk

    def _choice(
        self, index: int, text: str, logprobs: dict[str, Any] | None, reason: str | None
    ) -> dict[str, Any]:
        if self._answer.dialect == "chat":
            said: dict[str, Any] = {"delta": {"content": text} if text else {}}
        else:
            said = {"text": text}
        return {"index": index, **said, "logprobs": logprobs, "finish_reason": reason}


_OPEN: dict[str, Any] = {"logprobs": None, "finish_reason": None}
