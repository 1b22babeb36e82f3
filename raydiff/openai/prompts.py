"""From a body's prompts to requests. CPU work: call it from a thread for long texts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from raydiff.engine.validation import check_request
from raydiff.errors import DecodingError, UsageError, invalid
from raydiff.openai.contents import MAX_PROMPTS, Prompt
from raydiff.openai.protocol import ChatBody, CompletionBody, GenerationBody, body_path
from raydiff.request import Decoding, GenerationRequest, Lane
from raydiff.spec import ModelSpec
from raydiff.text import Tokenizer, fit_chat


@dataclass(frozen=True, kw_only=True)
class PromptReader:
    """Tokenises for one model and checks against its limits."""

    spec: ModelSpec
    tokenizer: Tokenizer

    def requests(
        self,
        body: GenerationBody,
        request_id: str,
        *,
        tenant: str = "",
        lane: Lane = "interactive",
    ) -> list[GenerationRequest]:
        """The rows of a body: `n` per prompt, prompt by prompt.

        Raises:
            PromptTooLong: a prompt exceeds the model's context.
            DecodingError: a decoding parameter is impossible; `param` is its path in the body.
            UsageError: a prompt is empty or holds an unknown token id, or rows are too many.
        """
        decoding = self._decoding(body)
        prompts = self._prompts(body, decoding)
        if len(prompts) * body.n > MAX_PROMPTS:
            expected = f"at most {MAX_PROMPTS} rows of {len(prompts)} prompts"
            raise UsageError(invalid("n", expected=expected, got=body.n), "n")
        first = [
            GenerationRequest(
                request_id=f"{request_id}-{i * body.n}",
                prompt_ids=ids,
                decoding=decoding,
                lane=lane,
                stream=body.stream,
                logprobs=body.top,
                snapshots=body.diffusing,
                tenant=tenant,
            )
            for i, ids in enumerate(prompts)
        ]
        for request in first:
            self._check(request, body)
        if body.n == 1:
            return first
        return [
            replace(
                request,
                request_id=f"{request_id}-{i * body.n + j}",
                decoding=replace(decoding, seed=row_seed(decoding.seed, j)),
            )
            for i, request in enumerate(first)
            for j in range(body.n)
        ]

    def check_ids(self, ids: Sequence[int], name: str) -> None:
        """Check token ids that a client gave under that name.

        Raises:
            UsageError: one is none of the model's.
        """
        limit = self.spec.vocab_size
        wrong = next((i for i in ids if not 0 <= i < limit), None)
        if wrong is not None:
            expected = f"token ids in [0, {limit})"
            raise UsageError(invalid(name, expected=expected, got=wrong), name)

    def _check(self, request: GenerationRequest, body: GenerationBody) -> None:
        try:
            check_request(request, self.spec)
        except UsageError as error:
            if error.param != "prompt" or not isinstance(body, ChatBody):
                raise
            message = str(error).replace("prompt:", "messages:", 1)
            raise type(error)(message, "messages") from None

    def _decoding(self, body: GenerationBody) -> Decoding:
        try:
            return self.spec.resolve(body.decoding())
        except DecodingError as error:
            raise body_path(error) from None

    def _prompts(self, body: GenerationBody, decoding: Decoding) -> list[tuple[int, ...]]:
        if isinstance(body, ChatBody):
            return [self._chat_ids(body, decoding)]
        assert isinstance(body, CompletionBody)
        return [self._prompt_ids(prompt) for prompt in body.prompt]

    def _chat_ids(self, body: ChatBody, decoding: Decoding) -> tuple[int, ...]:
        if body.truncation == "none":
            return self.tokenizer.chat_prompt_ids(body.texts())
        limit = self.spec.prompt_limit(decoding.max_tokens or 1)
        return fit_chat(self.tokenizer, body.texts(), limit).prompt_ids

    def _prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return self.tokenizer.prompt_ids(prompt)
        self.check_ids(prompt, "prompt")
        return self.tokenizer.wrap(prompt)


def row_seed(seed: int | None, row: int) -> int | None:
    """The seed of one of the `n` rows of a prompt: the first has the request's own. Rows without
    a seed draw their own."""
    if seed is None or row == 0:
        return seed
    digest = hashlib.blake2b(f"{seed}/{row}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
