"""Documents of a corpus as prompts: bare, or asked about in a chat, none longer than a limit."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from raydiff.decoding import Decoding
from raydiff.errors import DocumentTooLong, TokenizerError, UsageError, invalid
from raydiff.text.chunking import NEARLY_FULL, Chunk, Cutter, beginning
from raydiff.text.filling import Template
from raydiff.text.segments import count_tokens
from raydiff.text.styles import DEFAULT_INSTRUCTION, PromptStyle
from raydiff.text.tokenizer import Tokenizer

_OVERLAP = 8
"""Chunks share one part in this many of their tokens with the next."""
_SHORT = 8
"""Texts of up to this many characters for each token of a prompt are encoded as a whole."""
_BATCH_CHARACTERS = 2**18
_COUNTED_EXACTLY = 2**18
"""Characters of a text whose tokens are counted at once."""

Tokens = Sequence[int]


@dataclass(frozen=True, kw_only=True)
class LengthPolicy:
    """What becomes of long documents."""

    on_long: Literal["chunk", "truncate", "fail"] = "chunk"
    max_document_tokens: int | None = None
    """Tokens of text that are read at most; overlaps of chunks are not counted twice."""
    overlap: bool = True


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A document as prompts that fit."""

    prompts: tuple[Tokens, ...]
    gaps: tuple[str, ...] = ("",)
    """The white space at the end of each chunk."""
    truncated: bool = False
    """Whether an end of it is in none of them."""


@dataclass(frozen=True, kw_only=True)
class DocumentPrompts:
    """Makes whole prompts of texts, none longer than a limit."""

    tokenizer: Tokenizer
    style: PromptStyle
    limit: int
    """Most tokens of a prompt."""

    def __post_init__(self) -> None:
        if self.max_text_tokens < 1:
            expected = f"to leave room for text in prompts of {self.limit} tokens"
            got = f"{self.limit - self.max_text_tokens} tokens of template and examples"
            raise UsageError(invalid("template", expected=expected, got=got), "template")

    @cached_property
    def max_text_tokens(self) -> int:
        """Longest text, in tokens, that fits beside what surrounds it."""
        return self.limit - len(self.render(""))

    @cached_property
    def merging(self) -> DocumentPrompts:
        """Those for summaries that are to be merged."""
        style = replace(self.style, template=self.style.merge_template)
        return self if style == self.style else replace(self, style=style)

    @classmethod
    def usual(cls, tokenizer: Tokenizer) -> DocumentPrompts:
        """As a job makes them that gives neither an instruction nor decoding settings."""
        instruction = DEFAULT_INSTRUCTION if tokenizer.has_chat_template else None
        max_tokens = tokenizer.spec.resolve(Decoding()).max_tokens
        assert max_tokens is not None
        return cls.of(tokenizer, instruction, max_tokens)

    @classmethod
    def of(cls, tokenizer: Tokenizer, instruction: str | None, max_tokens: int) -> DocumentPrompts:
        """Prompts of an instruction, or of the bare text, that leave room for `max_tokens` of
        answer.

        Raises:
            UsageError: the instruction leaves no room for a text.
        """
        return cls.styled(tokenizer, PromptStyle.asking(instruction), max_tokens)

    @classmethod
    def styled(
        cls,
        tokenizer: Tokenizer,
        style: PromptStyle,
        max_tokens: int,
        most_text_tokens: int | None = None,
    ) -> DocumentPrompts:
        """Prompts of a style that leave room for `max_tokens` of answer, with at most
        `most_text_tokens` of text each.

        Raises:
            UsageError: the style leaves no room for a text, or the chat template refuses it.
        """
        limit = tokenizer.spec.prompt_limit(max_tokens)
        prompts = cls(tokenizer=tokenizer, style=style, limit=limit)
        spare = 0 if most_text_tokens is None else prompts.max_text_tokens - most_text_tokens
        return replace(prompts, limit=limit - spare) if spare > 0 else prompts

    def bound(self, values: Mapping[str, str]) -> DocumentPrompts:
        """Those of one document, whose columns the templates name.

        Raises:
            UsageError: they leave no room for a text.
        """
        return replace(self, style=self.style.bound(values))

    def fit(
        self, texts: Sequence[str], policy: LengthPolicy
    ) -> Iterator[Fitted | DocumentTooLong | TokenizerError]:
        """Each text as prompts that fit, or why it has none; one bad text spoils no other."""
        for batch in _batches(texts):
            for text, prompt in zip(batch, self._whole_apart(batch), strict=True):
                yield self._fit(text, prompt, policy)

    def whole(self, texts: Sequence[str]) -> list[tuple[int, ...] | None]:
        """The prompt of each text; None where the text must be cut first."""
        short = [not self._surely_long(text) for text in texts]
        prompts = iter(self._prompts([t for t, ok in zip(texts, short, strict=True) if ok]))
        found = [next(prompts) if ok else None for ok in short]
        return [p if p is not None and len(p) <= self.limit else None for p in found]

    def cut(self, text: str) -> tuple[int, ...]:
        """The prompt of a text whose end is cut off as far as it does not fit."""
        (prompt,) = self.whole([text])
        return tuple(self._head(text).rendered) if prompt is None else prompt

    def render(self, text: str) -> tuple[int, ...]:
        """The prompt of a text, however long it is."""
        if self.style.chat:
            return self.tokenizer.chat_prompt_ids(self._messages(text))
        return self.tokenizer.prompt_ids(self._plain(text))

    def _whole_apart(self, texts: Sequence[str]) -> list[tuple[int, ...] | TokenizerError | None]:
        try:
            return list(self.whole(texts))
        except BaseException as error:
            fault = as_tokenizer_error(error)
        if len(texts) == 1:
            return [fault]
        return [found for text in texts for found in self._whole_apart([text])]

    def _fit(
        self, text: str, prompt: Tokens | TokenizerError | None, policy: LengthPolicy
    ) -> Fitted | DocumentTooLong | TokenizerError:
        if isinstance(prompt, TokenizerError):
            return prompt
        if prompt is not None and self._within(prompt, policy):
            return Fitted(prompts=(_packed(prompt),))
        try:
            return self._fit_long(text, policy)
        except DocumentTooLong as error:
            return error
        except BaseException as error:
            return as_tokenizer_error(error)

    def _within(self, prompt: Tokens, policy: LengthPolicy) -> bool:
        most = policy.max_document_tokens
        return most is None or len(prompt) - (self.limit - self.max_text_tokens) <= most

    def _fit_long(self, text: str, policy: LengthPolicy) -> Fitted:
        most = policy.max_document_tokens
        if policy.on_long == "fail":
            limit = self.max_text_tokens if most is None else min(most, self.max_text_tokens)
            raise DocumentTooLong(f"text: expected at most {limit} tokens, got {self._size(text)}.")
        kept = text if most is None else beginning(self.tokenizer, text, most)
        if policy.on_long == "truncate":
            head = self._head(kept)
            return Fitted(prompts=(_packed(head.rendered),), truncated=head.end < len(text))
        shared = self.max_text_tokens // _OVERLAP if policy.overlap else 0
        chunks = self._cutter(overlap_tokens=shared).chunks(kept)
        held = [(_packed(c.rendered), kept[c.begin : c.end]) for c in chunks]
        held = [(prompt, piece) for prompt, piece in held if piece.strip()] or held[:1]
        return Fitted(
            prompts=tuple(prompt for prompt, _ in held),
            gaps=tuple(piece[len(piece.rstrip()) :] for _, piece in held),
            truncated=len(kept) < len(text),
        )

    def _size(self, text: str) -> str:
        if len(text) > _COUNTED_EXACTLY:
            return f"about {count_tokens(self.tokenizer, text)}"
        return str(len(self.tokenizer.encode(text)))

    def _head(self, text: str) -> Chunk:
        return next(self._cutter(least_full=NEARLY_FULL).chunks(text))

    def _cutter(self, *, overlap_tokens: int = 0, least_full: float = 0.5) -> Cutter:
        return Cutter(
            tokenizer=self.tokenizer,
            render=self.render,
            limit=self.limit,
            room=self.max_text_tokens,
            overlap_tokens=overlap_tokens,
            least_full=least_full,
        )

    def _surely_long(self, text: str) -> bool:
        """Told from a beginning, so that no long text is encoded as a whole."""
        if len(text) <= _SHORT * self.limit:
            return False
        return count_tokens(self.tokenizer, text, stop_above=2 * self.limit) > 2 * self.limit

    def _prompts(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        if self.style.chat:
            return [self.render(text) for text in texts]
        encoded = self.tokenizer.encode_batch([self._plain(text) for text in texts])
        return [self.tokenizer.wrap(ids) for ids in encoded]

    def _messages(self, text: str) -> list[dict[str, str]]:
        messages = [] if self.style.system is None else [_said("system", self.style.system)]
        for example, answer in self.style.examples:
            asked = _said("user", self._template.fill(example))
            messages += [asked, _said("assistant", answer)]
        return [*messages, _said("user", self._template.fill(text))]

    def _plain(self, text: str) -> str:
        return self._plain_examples + self._template.fill(text)

    @cached_property
    def _plain_examples(self) -> str:
        pairs = self.style.examples
        return "".join(f"{self._template.fill(text)}\n{answer}\n\n" for text, answer in pairs)

    @cached_property
    def _template(self) -> Template:
        return Template(self.style.template)


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Texts that are encoded together; one of any length, or several short ones."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and characters + len(text) > _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch


def as_tokenizer_error(error: BaseException) -> TokenizerError:
    """What a tokenizer raised, as an error of one document.

    A panic of its Rust code is no `Exception`; neither is an interrupt, which goes on.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    return TokenizerError(f"The tokenizer failed: {type(error).__name__}: {error}")


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _packed(tokens: Tokens) -> array[int]:
    """Four bytes a token: a long document has many prompts in hand at once."""
    return array("I", tokens)
