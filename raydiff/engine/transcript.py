"""Transcript: committed tokens as text, stop strings, and what a stream may already see."""

from __future__ import annotations

from collections.abc import Sequence

from raydiff.engine.stops import StopSearch
from raydiff.text import Tokenizer
from raydiff.text.spelling import Spelling


class Transcript:
    """The committed prefix of one request.

    Streamed text is append-only: text that could still turn into a stop string, or into
    another character once more bytes commit, is held back. A stop string counts where its last
    character belongs to a token after the first `min_tokens`; the text is cut before the one that
    is complete first, of several at the same character before the longest. So the result does not
    depend on how many tokens commit at once.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], min_tokens: int = 0) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._min_tokens = min_tokens
        self._sent = self._sent_tokens = 0
        self.restart()

    def restart(self) -> None:
        """Forget the tokens but not what a stream has seen: the same text comes again."""
        self._closed = False
        self._cut: int | None = None
        self._kept: int | None = None
        self._spelling = Spelling(self._tokenizer.decode)
        self._search = StopSearch(self._stop) if self._stop else None

    def __len__(self) -> int:
        """Tokens taken."""
        return len(self._spelling)

    @property
    def text(self) -> str:
        """All of it, up to a stop string."""
        return self._spelling.text[: self._cut]

    @property
    def all_ids(self) -> Sequence[int]:
        """All tokens taken, to look at and not to change."""
        return self._spelling.ids

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens of the text: all that were taken, or the fewest that spell what a stop string
        left."""
        return tuple(self._spelling.ids[: self._kept])

    def extend(self, ids: Sequence[int]) -> bool:
        """Take the tokens committed since the last call; True when a stop string ended the text."""
        if self._closed or self._search is None:
            if not self._closed:
                self._spelling.add(ids)
            return self._cut is not None
        early = max(0, self._min_tokens - len(self._spelling))
        for part, counts in ((ids[:early], False), (ids[early:], True)):
            self._spelling.add(part)
            if part and self._find(self._spelling.final_length, counts):
                return True
        return False

    def close(self) -> bool:
        """No more tokens will come: nothing is held back any longer. True when a stop string ends
        the text, if only now that its last characters are certain."""
        if not self._closed:
            counts = len(self._spelling) > self._min_tokens
            if not self._find(len(self._spelling.text), counts):
                self._closed = True
        return self._cut is not None

    def take(self) -> str:
        """Text that became final since the last call."""
        ready = self._final_length()
        if ready <= self._sent:
            return ""
        new = self._spelling.text[self._sent : ready]
        self._sent = ready
        return new

    def sent_tokens(self) -> int:
        """Tokens whose text has been taken, at least in part; never fewer than before."""
        if self._closed:
            return len(self._spelling) if self._kept is None else self._kept
        sent = self._spelling.tokens_for(min(self._sent, self._spelling.final_length))
        self._sent_tokens = max(self._sent_tokens, sent)
        return self._sent_tokens

    def preview(self, rest: str) -> str:
        """The text as it would be with `rest` after it: a stop string in that cuts it too."""
        if self._closed or not self._stop:
            return self.text + rest
        longest = max(map(len, self._stop))
        whole = self.text + rest
        from_ = max(0, len(whole) - len(rest) - longest + 1)
        cuts = [at for s in self._stop if (at := whole.find(s, from_)) >= 0]
        return whole[: min(cuts)] if cuts else whole

    def _find(self, until: int, counts: bool) -> bool:
        """Read the text up to a character; whether a stop string ends it there."""
        if self._search is None:
            return False
        piece = self._spelling.text[self._search.read : until]
        self._cut = self._search.find(piece, counts)
        if self._cut is None:
            return False
        self._kept = self._spelling.tokens_for(self._cut)
        self._closed = True
        return True

    def _final_length(self) -> int:
        if self._closed:
            return len(self._spelling.text) if self._cut is None else self._cut
        held = 0 if self._search is None else self._search.pending
        return self._spelling.final_length - held
