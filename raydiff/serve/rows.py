"""Rows of a dataset as requests, one dict in and one out: how Ray Data's stock
`ServeDeploymentProcessor` calls a replica.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from raydiff.client import Refusal
from raydiff.decoding import CHOICES, Decoding
from raydiff.errors import DeadlineExceeded, Overloaded, UsageError, invalid
from raydiff.request import Completion, GenerationRequest
from raydiff.text import Tokenizer, decoding_for_labels, label_tokens

DEFAULT_TIMEOUT_S = 600.0
_ADDED = ("request_id", "idx_in_batch")
"""What the processor puts into each row by itself; its ids repeat from actor to actor."""
_OURS = ("prompt", "messages", "labels", "timeout_s")


class Generator(Protocol):
    """What completes a call: `ReplicaCore.generate`."""

    async def generate(
        self, requests: Sequence[GenerationRequest], timeout_s: float
    ) -> list[Completion] | Refusal:
        """Completions in order, or why there are none."""


@dataclass(frozen=True, kw_only=True)
class RowAnswerer:
    """Answers rows for one model."""

    tokenizer: Tokenizer
    generator: Generator

    async def answer(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one row.

        A row has a `prompt` (a text to continue or summarise, or its token ids) or `messages` of a
        chat (dicts with role and content), may have `labels` to choose from and a `timeout_s`, and
        otherwise the fields of `Decoding`; null or NaN means absent. While the queue is full it
        waits. The answer has `text`, `finish_reason` and `usage`, and `label_probability` where
        there are labels.

        Raises:
            ValueError: the row cannot be answered. Ray's processor makes an error row of it, where
                it is told to continue on errors.
            TimeoutError: not within `timeout_s`; neither does that end such a job.
            RaydiffError: the replica is unwell.
        """
        try:
            fields = {k: v for k, v in row.items() if k not in _ADDED and not _absent(v)}
            timeout_s = float(fields.get("timeout_s", DEFAULT_TIMEOUT_S))
            request = await asyncio.to_thread(self._request, fields)
        except UsageError as error:
            raise ValueError(str(error)) from None
        completion = await self._complete(request, timeout_s)
        if completion.finish_reason == "error":
            raise ValueError(completion.error)
        return _answer(completion)

    def _request(self, fields: Mapping[str, Any]) -> GenerationRequest:
        asked = {k: _plain(k, v) for k, v in fields.items() if k not in _OURS}
        decoding = Decoding.from_mapping(asked)
        choices: tuple[tuple[int, ...], ...] = ()
        if "labels" in fields:
            labels = label_tokens(self.tokenizer, [str(label) for label in fields["labels"]])
            decoding = decoding_for_labels(self.tokenizer.spec, labels, decoding)
            choices = tuple(labels)
        return GenerationRequest(
            request_id="row",
            prompt_ids=self._prompt(fields),
            decoding=self.tokenizer.spec.resolve(decoding),
            choices=choices,
            lane="batch",
        )

    def _prompt(self, fields: Mapping[str, Any]) -> tuple[int, ...]:
        if ("prompt" in fields) == ("messages" in fields):
            expected = "either a prompt or messages"
            raise UsageError(invalid("prompt", expected=expected, got=sorted(fields)), "prompt")
        if "messages" in fields:
            messages = [{k: str(m[k]) for k in ("role", "content")} for m in fields["messages"]]
            return self.tokenizer.chat_prompt_ids(messages)
        prompt = fields["prompt"]
        if isinstance(prompt, str):
            return self.tokenizer.prompt_ids(prompt)
        return self.tokenizer.wrap([int(token) for token in prompt])

    async def _complete(self, request: GenerationRequest, timeout_s: float) -> Completion:
        """The completion, waiting for a place in the queue as long as there is time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            answer = await self.generator.generate([request], max(0.0, deadline - loop.time()))
            if not isinstance(answer, Refusal):
                return answer[0]
            error = answer.error
            if isinstance(error, DeadlineExceeded):
                raise TimeoutError(str(error))
            if not isinstance(error, Overloaded):
                raise error
            if loop.time() + error.retry_after_s >= deadline:
                raise TimeoutError(str(error))
            await asyncio.sleep(error.retry_after_s)


def _absent(value: Any) -> bool:
    """A dataset has a value for each field that any row has: null, or NaN among numbers."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _plain(name: str, value: Any) -> Any:
    """A setting as Python has it: datasets carry numpy's values, and whole numbers beside NaN as
    floats."""
    value = value.tolist() if hasattr(value, "tolist") else value
    whole = name in CHOICES and CHOICES[name].kind is int
    return int(value) if whole and isinstance(value, float) and value.is_integer() else value


def _answer(completion: Completion) -> dict[str, Any]:
    usage = completion.usage
    answer: dict[str, Any] = {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "forwards": usage.forwards,
        },
    }
    if completion.choice_probability is not None:
        answer["label_probability"] = completion.choice_probability
    return answer
