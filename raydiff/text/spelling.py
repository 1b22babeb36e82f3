"""The text of a growing run of tokens, piece by piece, as decoding all of it would give it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
"""What stands for bytes that are no character, or none yet."""

_CONTEXT = 6
"""Tokens decoded once more before new ones: decoders treat the first of a run differently."""

Decode = Callable[[Sequence[int]], str]


class Spelling:
    """Takes tokens, gives text. The work is linear in the tokens, however they come.

    Text at whose end a character is incomplete is not *final*: more bytes may change it.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self.ids: list[int] = []
        self._settled = ""
        """Text at the beginning that no later token changes."""
        self._rest = ""
        """Text of the tokens after that."""
        self._ends = [(0, 0)]
        """(characters, tokens) of every beginning that was ever settled."""
        self._known: tuple[int, str] | None = None
        """Where the context of the settled tokens' end begins, and its text."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def text(self) -> str:
        """The text of all tokens; incomplete characters at its end are U+FFFD."""
        return self._settled + self._rest if self._rest else self._settled

    @property
    def final_length(self) -> int:
        """Characters that no later token changes."""
        return len(self._settled) + len(self._rest.rstrip(REPLACEMENT))

    def add(self, ids: Sequence[int]) -> None:
        """Take more tokens."""
        if not ids:
            return
        if self._known is None:
            self._known = self._context(self._ends[-1][1])
        self.ids.extend(ids)
        begin, before = self._known
        whole = self._decode(self.ids[begin:])
        if not whole.startswith(before):  # a decoder that looks further back
            self._known, whole, before = (0, self._settled), self._decode(self.ids), self._settled
        self._rest = whole[len(before) :]
        if not self._rest.endswith(REPLACEMENT):
            self._settle()

    def tokens_for(self, characters: int) -> int:
        """Fewest leading tokens whose text begins with the first so many characters."""
        place = bisect_left(self._ends, (characters, 0))
        low = self._ends[place - 1][1] + 1 if place else 0
        high = self._ends[place][1] if place < len(self._ends) else len(self.ids)
        if low >= high:
            return high
        known = self._ends[place - 1][0]
        wanted = self.text[known:characters]
        begin, before = self._context(low - 1)
        while low < high:
            middle = (low + high) // 2
            text = self._decode(self.ids[begin:middle])[len(before) :]
            if text.startswith(wanted):
                high = middle
            else:
                low = middle + 1
        return low

    def _settle(self) -> None:
        self._settled += self._rest
        self._rest = ""
        self._ends.append((len(self._settled), len(self.ids)))
        self._known = None

    def _context(self, end: int) -> tuple[int, str]:
        """Where to begin so that tokens from `end` on are decoded as in the whole run, and the
        text from there to `end`."""
        size = _CONTEXT
        while size < end:
            text = self._decode(self.ids[end - size : end])
            if text.strip() and not text.startswith(REPLACEMENT):
                return end - size, text
            size *= 2
        return 0, self._decode(self.ids[:end]) if end else ""
