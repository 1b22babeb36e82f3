"""From a body's prompts to requests. CPU work: call it from a thread for long texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydiff.engine.validation import check_request
from raydiff.errors import DecodingError, UsageError, invalid
from raydiff.openai.contents import Prompt
from raydiff.openai.protocol import ChatBody, CompletionBody, GenerationBody, body_path
from raydiff.request import Decoding, GenerationRequest
from raydiff.spec import ModelSpec
from raydiff.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class PromptReader:
    """Tokenises for one model and checks against its limits."""

    spec: ModelSpec
    tokenizer: Tokenizer

    def requests(self, body: GenerationBody, request_id: str) -> list[GenerationRequest]:
        """One request per prompt of the body.

        Raises:
            PromptTooLong: a prompt exceeds the model's context.
            DecodingError: a decoding parameter is impossible; `param` is its path in the body.
            UsageError: a prompt is empty or holds an unknown token id.
        """
        decoding = self._decoding(body)
        requests = [
            GenerationRequest(
                request_id=f"{request_id}-{i}",
                prompt_ids=ids,
                decoding=decoding,
                stream=body.stream,
            )
            for i, ids in enumerate(self._prompts(body))
        ]
        for request in requests:
            check_request(request, self.spec)
        return requests

    def _decoding(self, body: GenerationBody) -> Decoding:
        try:
            return self.spec.resolve(body.decoding())
        except DecodingError as error:
            raise body_path(error) from None

    def _prompts(self, body: GenerationBody) -> list[tuple[int, ...]]:
        if isinstance(body, ChatBody):
            return [self.tokenizer.chat_prompt_ids(body.texts())]
        assert isinstance(body, CompletionBody)
        return [self._prompt_ids(prompt) for prompt in body.prompt]

    def _prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return self.tokenizer.prompt_ids(prompt)
        self._check_ids(prompt)
        return self.tokenizer.wrap(prompt)

    def _check_ids(self, ids: Sequence[int]) -> None:
        limit = self.spec.vocab_size
        wrong = next((i for i in ids if not 0 <= i < limit), None)
        if wrong is not None:
            expected = f"token ids in [0, {limit})"
            raise UsageError(invalid("prompt", expected=expected, got=wrong), "prompt")
