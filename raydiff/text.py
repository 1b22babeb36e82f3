"""Text in and out of tokens: tokenizer, chat template, chunking. Loads no torch.

User text never becomes a special token: a literal mask token in a document is plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from raydiff.errors import ModelError, UsageError, invalid
from raydiff.families import load_spec, model_path
from raydiff.spec import ModelSpec

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


class Tokenizer:
    """A checkpoint's `tokenizer.json` together with the prompt format of its spec."""

    def __init__(
        self, backend: tokenizers.Tokenizer, spec: ModelSpec, chat_template: str | None = None
    ) -> None:
        self._backend = backend
        self._backend.encode_special_tokens = True
        self._backend.no_truncation()
        self._backend.no_padding()
        self._spec = spec
        self._chat_template = chat_template
        self._template_backend: tokenizers.Tokenizer | None = None

    @classmethod
    def load(cls, path_or_name: str | Path) -> Tokenizer:
        """Read `tokenizer.json` and, where there is one, the chat template of a checkpoint.

        Raises:
            ModelError: the directory has no readable tokenizer.
        """
        path = model_path(path_or_name)
        file = path / "tokenizer.json"
        try:
            backend = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare Exception on malformed files
            raise ModelError(f"{file}: expected a readable tokenizer: {error}.") from error
        return cls(backend, load_spec(path_or_name), _chat_template(path))

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without special tokens."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts at once."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [list(encoding.ids) for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Character span of each token of `encode(text)`."""
        return list(self._backend.encode(text, add_special_tokens=False).offsets)

    def wrap(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Put the model's prompt prefix and suffix around document tokens."""
        return (*self._spec.prompt_prefix_ids, *ids, *self._spec.prompt_suffix_ids)

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a whole prompt: prefix, text, suffix."""
        return self.wrap(self.encode(text))

    @property
    def max_text_tokens(self) -> int:
        """Longest text, in tokens, that fits the prompt."""
        around = len(self._spec.prompt_prefix_ids) + len(self._spec.prompt_suffix_ids)
        return self._spec.max_prompt_tokens - around

    def chat_prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Token ids of a chat, by the checkpoint's template or, without one, its contents
        joined by blank lines.

        Raises:
            UsageError: there are no messages, or the template refuses them.
        """
        if not messages:
            raise UsageError(
                invalid("messages", expected="at least one message", got=[]), "messages"
            )
        if self._chat_template is None:
            return self.prompt_ids("\n\n".join(m["content"] for m in messages))
        return tuple(self._encode_template(self._render(messages)))

    def _render(self, messages: Sequence[Mapping[str, str]]) -> str:
        from jinja2.exceptions import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        try:
            template = environment.from_string(self._chat_template or "")
            return template.render(messages=list(messages), add_generation_prompt=True)
        except TemplateError as error:
            raise UsageError(
                f"messages: the chat template refused them: {error}.", "messages"
            ) from (error)

    def _encode_template(self, text: str) -> list[int]:
        # a copy of its own, because a flag on the shared one would race between threads
        if self._template_backend is None:
            backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
            backend.encode_special_tokens = False
            self._template_backend = backend
        return list(self._template_backend.encode(text, add_special_tokens=False).ids)


def _refuse(message: str) -> None:
    raise UsageError(f"messages: {message}.", "messages")


def _chat_template(path: Path) -> str | None:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    config = path / "tokenizer_config.json"
    if not config.is_file():
        return None
    loaded: Any = json.loads(config.read_text(encoding="utf-8"))
    template = loaded.get("chat_template")
    return template if isinstance(template, str) else None


def split_into_chunks(
    tokenizer: Tokenizer, text: str, max_tokens: int, overlap_tokens: int = 0
) -> list[str]:
    """Cut `text` into chunks of at most `max_tokens` tokens that cover it in order.

    Cuts fall on paragraph ends where one lies in the second half of a chunk, else on sentence
    ends, else between tokens. Neighbours share about `overlap_tokens` tokens.

    Raises:
        UsageError: `overlap_tokens` is not below half of `max_tokens`.
    """
    if not 0 <= overlap_tokens <= max_tokens // 2:
        expected = f"at least 0 and at most half of max_tokens ({max_tokens})"
        raise UsageError(
            invalid("overlap_tokens", expected=expected, got=overlap_tokens), "overlap_tokens"
        )
    spans = tokenizer.offsets(text)
    if len(spans) <= max_tokens:
        return [text]
    return list(_chunks(text, spans, max_tokens, overlap_tokens))


def _chunks(
    text: str, spans: list[tuple[int, int]], max_tokens: int, overlap_tokens: int
) -> Iterator[str]:
    first = 0
    while first < len(spans):
        last = min(first + max_tokens, len(spans))
        begin = spans[first][0]
        if last == len(spans):
            yield text[begin:]
            return
        end = _cut(text, begin, spans[last][0])
        last = _token_at(spans, end, first, last)
        yield text[begin : spans[last][0]]
        first = max(first + 1, last - overlap_tokens)


def _cut(text: str, begin: int, end: int) -> int:
    middle = (begin + end) // 2
    for boundary in (_PARAGRAPH, _SENTENCE):
        ends = [m.end() for m in boundary.finditer(text, middle, end)]
        if ends:
            return ends[-1]
    return end


def _token_at(spans: list[tuple[int, int]], end: int, first: int, last: int) -> int:
    """The first token that begins at or after character `end`, else `last`."""
    while last > first + 1 and spans[last - 1][0] >= end:
        last -= 1
    return last
