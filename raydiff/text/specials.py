"""Special tokens in rendered chats: those of the template count, those that a user typed do not.

A message is *shielded* before its template is rendered: a break character goes into everything
in it that reads as a special token, and to its ends where it could complete one together with
what stands beside it. Shielded text passes through a template like any other; afterwards only
unbroken special tokens are special, and the breaks are taken out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import tokenizers

from raydiff.errors import UsageError

_PRIVATE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
"""Unicode's private-use characters."""


@dataclass(frozen=True)
class Special:
    """A special token, and whether it takes the space beside it."""

    id: int
    lstrip: bool = False
    rstrip: bool = False


class Specials:
    """The special tokens of a tokenizer, by their text."""

    def __init__(self, tokens: Mapping[str, Special]) -> None:
        self._tokens = {text: token for text, token in tokens.items() if len(text) > 1}
        self._lengths = sorted({len(text) for text in self._tokens}, reverse=True)
        firsts = sorted({text[0] for text in self._tokens})
        self._first = re.compile("|".join(map(re.escape, firsts)) or r"(?!)")
        self._heads = {text[:n] for text in self._tokens for n in range(1, len(text))}
        self._tails = {text[n:] for text in self._tokens for n in range(1, len(text))}

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer) -> Specials:
        """Those of a tokenizer."""
        added = backend.get_added_tokens_decoder()
        return cls(
            {
                token.content: Special(number, token.lstrip, token.rstrip)
                for number, token in added.items()
                if token.special
            }
        )

    def suspect(self, text: str) -> bool:
        """Whether `shielded` would change the text."""
        return self._open_ended(text) or next(self._occurrences(text), None) is not None

    def shielded(self, text: str, mark: str) -> str:
        """The text with `mark` in all that could be read as a special token."""
        pieces, done = [], 0
        for start, _ in self._occurrences(text):
            pieces.append(text[done : start + 1])
            done = start + 1
        shielded = mark.join([*pieces, text[done:]])
        return f"{mark}{shielded}{mark}" if self._open_ended(text) else shielded

    def split(self, text: str, mark: str) -> Iterator[str | Special]:
        """The special tokens of a rendered text and what lies between, without marks."""
        done = 0
        skip_space = False
        for start, literal in self._occurrences(text):
            if start < done:
                continue
            special = self._tokens[literal]
            between = text[done:start].replace(mark, "")
            between = between.lstrip() if skip_space else between
            yield between.rstrip() if special.lstrip else between
            yield special
            done = start + len(literal)
            skip_space = special.rstrip
        rest = text[done:].replace(mark, "")
        yield rest.lstrip() if skip_space else rest

    def _occurrences(self, text: str) -> Iterator[tuple[int, str]]:
        """Where special tokens stand, the longest at each place; they may overlap."""
        for match in self._first.finditer(text):
            start = match.start()
            for length in self._lengths:
                literal = text[start : start + length]
                if literal in self._tokens:
                    yield start, literal
                    break

    def _open_ended(self, text: str) -> bool:
        """Whether its beginning, its end or all of it is part of a special token."""
        longest = self._lengths[0] if self._lengths else 0
        for n in range(1, min(longest, len(text) + 1)):
            if text[:n] in self._tails or text[-n:] in self._heads:
                return True
        return 0 < len(text) < longest and any(text in token for token in self._tokens)


def unused_mark(texts: Iterable[str]) -> str:
    """A private-use character that none of the texts holds.

    Raises:
        UsageError: they hold them all.
    """
    used = set().union(*texts)
    for codes in _PRIVATE:
        for code in codes:
            if chr(code) not in used:
                return chr(code)
    message = "messages: expected some private-use characters unused, got all of them."
    raise UsageError(message, "messages")
