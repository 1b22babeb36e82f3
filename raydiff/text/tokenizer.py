"""Tokenizer: a checkpoint's tokens together with the prompt format of its spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from raydiff.errors import UsageError, invalid
from raydiff.families import load_spec, model_path, without_files
from raydiff.spec import ModelSpec
from raydiff.text.backends import hardened, load_backend, recognising_specials
from raydiff.text.fallback import ByteFallback
from raydiff.text.pieces import TokenPieces
from raydiff.text.specials import Specials, unused_mark
from raydiff.text.synthetic import synthetic_backend
from raydiff.text.template import ChatTemplate, Messages, load_chat_template


class Tokenizer:
    """Text to tokens and back. User text never becomes a special token."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        spec: ModelSpec,
        chat_template: ChatTemplate | None = None,
    ) -> None:
        self._control = frozenset({spec.mask_id, spec.pad_id, *spec.end_ids})
        self._backend = hardened(backend, self._control)
        self._backend.encode_special_tokens = True
        self._fallback = ByteFallback(self._backend)
        self._chat_template = chat_template
        self.spec = spec

    @classmethod
    def load(cls, path_or_name: str | Path) -> Tokenizer:
        """Read the tokenizer files and the chat template of a checkpoint. A model of random
        weights, or a simulated one, has a tokenizer of bytes.

        Raises:
            ModelError: the directory has no readable tokenizer, or a malformed template.
        """
        spec, template = load_spec(path_or_name), load_chat_template(path_or_name)
        if without_files(path_or_name):
            return cls(synthetic_backend(spec), spec, template)
        return cls(load_backend(model_path(path_or_name)), spec, template)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without special tokens."""
        return self._plain(text, self._backend.encode(text, add_special_tokens=False))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts at once."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [
            self.encode(text) if self._has_control(encoding.ids) else list(encoding.ids)
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        return self._fallback.decode(ids)

    def piece(self, token: int) -> tuple[str, list[int] | None]:
        """The text and the bytes of one token after others: see `TokenPieces.piece`."""
        return self._pieces.piece(token)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Character span of each token of `encode(text)`."""
        return list(self._backend.encode(text, add_special_tokens=False).offsets)

    def wrap(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Put the model's prompt prefix and suffix around document tokens."""
        return (*self.spec.prompt_prefix_ids, *ids, *self.spec.prompt_suffix_ids)

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a whole prompt: prefix, text, suffix. A model continues it; to have it
        answered by a model with a chat template, use `chat_prompt_ids`."""
        return self.wrap(self.encode(text))

    @property
    def max_text_tokens(self) -> int:
        """Longest text, in tokens, that fits the prompt."""
        around = len(self.spec.prompt_prefix_ids) + len(self.spec.prompt_suffix_ids)
        return self.spec.max_prompt_tokens - around

    @property
    def has_chat_template(self) -> bool:
        """Whether the model was made for chats."""
        return self._chat_template is not None

    def chat_prompt_ids(self, messages: Messages) -> tuple[int, ...]:
        """Token ids of a chat, by the checkpoint's template or, without one, its contents
        joined by blank lines.

        Special tokens of the template count as such; whatever reads like one in a message is text.

        Raises:
            UsageError: there are no messages, or the template refuses them.
        """
        if not messages:
            raise UsageError(
                invalid("messages", expected="at least one message", got=[]), "messages"
            )
        if self._chat_template is None:
            return self.prompt_ids("\n\n".join(m["content"] for m in messages))
        contents = [m["content"] for m in messages]
        if any(map(self._specials.suspect, contents)):
            return tuple(self._shielded_chat(self._chat_template, messages))
        rendered = self._chat_template.render(messages)
        return tuple(self._special_backend.encode(rendered, add_special_tokens=False).ids)

    def answer_prompt_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a prompt that asks for an answer to `text`: one message of a user where the
        model has a chat template, else the text itself."""
        if self._chat_template is None:
            return self.prompt_ids(text)
        return self.chat_prompt_ids([{"role": "user", "content": text}])

    @cached_property
    def _pieces(self) -> TokenPieces:
        return TokenPieces(self._backend, self.decode)

    @cached_property
    def _specials(self) -> Specials:
        return Specials.of(self._backend)

    @cached_property
    def _special_backend(self) -> tokenizers.Tokenizer:
        return recognising_specials(self._backend)

    def _shielded_chat(self, template: ChatTemplate, messages: Messages) -> list[int]:
        mark = unused_mark([template.source, *(m["content"] for m in messages)])
        shielded = [_with_content(m, self._specials.shielded(m["content"], mark)) for m in messages]
        ids: list[int] = []
        for piece in self._specials.split(template.render(shielded), mark):
            if isinstance(piece, str):
                ids += self.encode(piece)
            else:
                ids.append(piece.id)
        return ids

    def _plain(self, text: str, encoding: tokenizers.Encoding) -> list[int]:
        """The encoding's ids; a word that is a control token by its spelling alone, as whole
        words of the vocabulary may be, is taken letter by letter."""
        if not self._has_control(encoding.ids):
            return list(encoding.ids)
        ids: list[int] = []
        for number, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True):
            ids += self._letters(text[begin:end]) if number in self._control else [number]
        return ids

    def _letters(self, text: str) -> list[int]:
        encodings = self._backend.encode_batch(list(text), add_special_tokens=False)
        return [i for encoding in encodings for i in encoding.ids if i not in self._control]

    def _has_control(self, ids: Sequence[int]) -> bool:
        return not self._control.isdisjoint(ids)


def _with_content(message: Mapping[str, str], content: str) -> dict[str, str]:
    return {**message, "content": content}
