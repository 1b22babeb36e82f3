"""Transcript: committed tokens as text, stop strings, and what a stream may already see."""

from __future__ import annotations

from collections.abc import Sequence

from raydiff.text import Tokenizer

REPLACEMENT = "\ufffd"


class Transcript:
    """The committed prefix of one request.

    Streamed text is append-only: text that could still turn into a stop string, or into
    another character once more bytes commit, is held back.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._sent = ""
        self.restart()

    def restart(self) -> None:
        """Forget the tokens but not what a stream has seen: the same text comes again."""
        self._closed = False
        self.token_ids: tuple[int, ...] = ()
        self.text = ""

    def extend(self, ids: Sequence[int]) -> bool:
        """Take the whole committed prefix so far; True when a stop string ended it."""
        if self._closed:
            return True
        self.token_ids = tuple(ids)
        self.text = self._tokenizer.decode(self.token_ids)
        cuts = [at for s in self._stop if (at := self.text.find(s)) >= 0]
        if not cuts:
            return False
        self.text = self.text[: min(cuts)]
        self.token_ids = self.token_ids[: self._tokens_for(len(self.text))]
        self._closed = True
        return True

    def close(self) -> None:
        """No more tokens will come: nothing is held back any longer."""
        self._closed = True

    def take(self) -> str:
        """Text that became final since the last call."""
        ready = self.text if self._closed else self.text[: self._final_length()]
        new = ready[len(self._sent) :]
        self._sent += new
        return new

    def _final_length(self) -> int:
        text = self.text.rstrip(REPLACEMENT)
        longest = max((len(s) for s in self._stop), default=0)
        for start in range(max(0, len(text) - longest + 1), len(text)):
            if any(s.startswith(text[start:]) for s in self._stop):
                return start
        return len(text)

    def _tokens_for(self, characters: int) -> int:
        """Fewest leading tokens whose text has at least `characters` characters."""
        low, high = 0, len(self.token_ids)
        while low < high:
            middle = (low + high) // 2
            if len(self._tokenizer.decode(self.token_ids[:middle])) >= characters:
                high = middle
            else:
                low = middle + 1
        return low
