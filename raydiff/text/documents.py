"""Documents of a corpus as prompts: bare for models that only summarise, asked for in a chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from raydiff.decoding import Decoding
from raydiff.errors import UsageError, invalid
from raydiff.text.template import load_chat_template
from raydiff.text.tokenizer import Tokenizer

DEFAULT_INSTRUCTION = "Summarize the following text in one or two sentences."


def instruction_for(model: str | Path, asked: str | None) -> str | None:
    """What a model is told to do with each document: `asked`, or a default for models with a chat
    template; None for models without one, which take the bare text.

    Raises:
        UsageError: an instruction is asked of a model that takes none.
        ModelError: the model is unknown or malformed.
    """
    if load_chat_template(model) is not None:
        return DEFAULT_INSTRUCTION if asked is None else asked
    if asked:
        remedy = "It has no chat template and takes the bare text. Leave it out."
        message = invalid(
            "instruction", expected=f"none for model {str(model)!r}", got=asked, remedy=remedy
        )
        raise UsageError(message, "instruction")
    return None


@dataclass(frozen=True, kw_only=True)
class DocumentPrompts:
    """Makes whole prompts of texts, none longer than a limit."""

    tokenizer: Tokenizer
    instruction: str | None
    """Stands before each text in one message of a user; None takes the bare text."""
    limit: int
    """Most tokens of a prompt."""

    def __post_init__(self) -> None:
        if self.max_text_tokens < 1:
            expected = f"to leave room for text in prompts of {self.limit} tokens"
            message = invalid("instruction", expected=expected, got=self.instruction)
            raise UsageError(message, "instruction")

    @cached_property
    def max_text_tokens(self) -> int:
        """Longest text, in tokens, that fits beside what surrounds it."""
        return self.limit - len(self._prompt(""))

    @classmethod
    def usual(cls, tokenizer: Tokenizer) -> DocumentPrompts:
        """As a job makes them that gives neither an instruction nor decoding settings."""
        instruction = DEFAULT_INSTRUCTION if tokenizer.has_chat_template else None
        max_tokens = tokenizer.spec.resolve(Decoding()).max_tokens
        assert max_tokens is not None
        return cls.of(tokenizer, instruction, max_tokens)

    @classmethod
    def of(cls, tokenizer: Tokenizer, instruction: str | None, max_tokens: int) -> DocumentPrompts:
        """Prompts that leave room for `max_tokens` of answer.

        Raises:
            UsageError: the instruction leaves no room for a text.
        """
        limit = tokenizer.spec.prompt_limit(max_tokens)
        return cls(tokenizer=tokenizer, instruction=instruction, limit=limit)

    def whole(self, texts: Sequence[str]) -> list[tuple[int, ...] | None]:
        """The prompt of each text; None where the text must be cut first."""
        prompts = (
            [self.tokenizer.wrap(ids) for ids in self.tokenizer.encode_batch(texts)]
            if self.instruction is None
            else [self._prompt(text) for text in texts]
        )
        return [prompt if len(prompt) <= self.limit else None for prompt in prompts]

    def cut(self, text: str) -> tuple[int, ...]:
        """The prompt of a text whose end is cut off as far as it does not fit.

        Tokens merge across the edges of a piece, so that a piece of `max_text_tokens` tokens may
        come to a few more in its prompt.
        """
        prompt = self._prompt(text)
        while text and len(prompt) > self.limit:
            spans = self.tokenizer.offsets(text)
            keep = max(0, len(spans) - (len(prompt) - self.limit))
            text = text[: min(spans[keep][0], len(text) - 1)] if spans else ""
            prompt = self._prompt(text)
        return prompt

    def _prompt(self, text: str) -> tuple[int, ...]:
        if self.instruction is None:
            return self.tokenizer.prompt_ids(text)
        content = f"{self.instruction}\n\n{text}" if self.instruction else text
        return self.tokenizer.chat_prompt_ids([{"role": "user", "content": content}])
