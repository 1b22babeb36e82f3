"""Stop strings: which is complete first in a text that comes in pieces, and what may become one.

An automaton of all stop strings (Aho and Corasick 1975) reads each character once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache


class StopStrings:
    """States are beginnings of stop strings; state 0 is the empty one. Immutable."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fall: list[int] = [0]
        """The longest proper end of a state that is a state too."""
        self.lengths: list[int] = [0]
        """Characters of each state: so much of the text read may become a stop string."""
        self.matches: list[int] = [0]
        """Length of the longest stop string that ends in the state; 0: none does."""
        for string in strings:
            self._insert(string)
        self._connect()

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        while state and character not in self._next[state]:
            state = self._fall[state]
        return self._next[state].get(character, 0)

    def _insert(self, string: str) -> None:
        state = 0
        for character in string:
            following = self._next[state].get(character)
            if following is None:
                following = self._next[state][character] = len(self._next)
                self._next.append({})
                self._fall.append(0)
                self.lengths.append(self.lengths[state] + 1)
                self.matches.append(0)
            state = following
        self.matches[state] = len(string)

    def _connect(self) -> None:
        waiting = deque(self._next[0].values())
        while waiting:
            state = waiting.popleft()
            fall = self._fall[state]
            self.matches[state] = max(self.matches[state], self.matches[fall])
            for character, following in self._next[state].items():
                self._fall[following] = self.step(fall, character)
                waiting.append(following)


class StopSearch:
    """Where a text that comes in pieces is to be cut: before the stop string that is complete
    first; of several complete at the same character, before the longest."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._stops = compiled(tuple(strings))
        self._state = 0
        self._read = 0

    @property
    def read(self) -> int:
        """Characters read."""
        return self._read

    @property
    def pending(self) -> int:
        """Characters at the end of what was read that may become a stop string."""
        return self._stops.lengths[self._state]

    def find(self, piece: str, counts: bool) -> int | None:
        """Read the next piece; the place of the cut in the whole text, if there is one.

        Unless it `counts`, a stop string that ends in the piece is text.
        """
        for character in piece:
            self._state = self._stops.step(self._state, character)
            self._read += 1
            length = self._stops.matches[self._state]
            if length and counts:
                return self._read - length
        return None


@lru_cache(maxsize=256)
def compiled(strings: tuple[str, ...]) -> StopStrings:
    """The automaton of some stop strings, made once: most requests of an application share them."""
    return StopStrings(strings)
