"""Bodies and answers of `/tokenize` and `/detokenize`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, Field

from raydiff.errors import UsageError, invalid
from raydiff.openai.prompts import PromptReader
from raydiff.openai.protocol import ChatMessage
from raydiff.openai.reading import Body


def _given(name: str) -> dict[str, Any]:
    """The schema of bodies with a field that is not null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


class TokenizeBody(Body):
    """Body of `/tokenize`: a prompt or a chat."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_given("prompt"), _given("messages")]})

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = Field(None, min_length=1)
    add_special_tokens: bool = Field(
        True, description="Of a prompt: with what the model gets around each."
    )
    return_token_strs: bool = Field(False, description="Also give each token's text.")

    def check(self) -> None:
        if (self.prompt is None) == (self.messages is None):
            got = [n for n in ("prompt", "messages") if getattr(self, n) is not None]
            raise UsageError(invalid("prompt", expected="either it or messages", got=got), "prompt")
        if self.messages is not None and not self.add_special_tokens:
            message = "add_special_tokens: expected true with messages: the template has its own."
            raise UsageError(message, "add_special_tokens")


class DetokenizeBody(Body):
    """Body of `/detokenize`."""

    model: str | None = None
    tokens: list[int]


@dataclass(frozen=True)
class TokenReader:
    """Texts to tokens and back, for one model."""

    reader: PromptReader

    def tokens(self, body: TokenizeBody) -> dict[str, Any]:
        """The tokens as a request would have them, however many they are.

        Raises:
            UsageError: the chat template refuses the messages.
        """
        spec, tokenizer = self.reader.spec, self.reader.tokenizer
        ids = self._ids(body)
        strings = [tokenizer.piece(i)[0] for i in ids] if body.return_token_strs else None
        return {
            "count": len(ids),
            "max_model_len": spec.context_length or spec.max_prompt_tokens + spec.max_new_tokens,
            "tokens": list(ids),
            "token_strs": strings,
        }

    def text(self, body: DetokenizeBody) -> dict[str, str]:
        """The text of tokens.

        Raises:
            UsageError: one is none of the model's.
        """
        self.reader.check_ids(body.tokens, "tokens")
        return {"prompt": self.reader.tokenizer.decode(body.tokens)}

    def _ids(self, body: TokenizeBody) -> tuple[int, ...]:
        tokenizer = self.reader.tokenizer
        if body.messages is not None:
            messages = [{"role": m.role, "content": m.content} for m in body.messages]
            return tokenizer.chat_prompt_ids(messages)
        assert body.prompt is not None
        if body.add_special_tokens:
            return tokenizer.prompt_ids(body.prompt)
        return tuple(tokenizer.encode(body.prompt))
