"""Which requests of a shard are to be sent, sent again, or sent alone: pure bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from raydiff.corpus.asks import Ask


class Round:
    """The requests to send next. One that failed is sent again until its attempts are used up;
    one that may have broken something is sent alone."""

    def __init__(self, max_attempts: int) -> None:
        self._max_attempts = max_attempts
        self._asks: list[Ask] = []
        self._isolated: set[int] = set()

    def add(self, asks: Iterable[Ask]) -> None:
        """To be sent."""
        self._asks += [self._marked(ask) for ask in asks]

    def again(self, ask: Ask, *, suspect: bool) -> bool:
        """Count a failure; whether it is to be sent again."""
        attempts = ask.attempts + 1
        if attempts >= self._max_attempts:
            return False
        self._asks.append(replace(ask, attempts=attempts, suspect=ask.suspect or suspect))
        return True

    def suspect(self, ask: Ask) -> None:
        """Send again, alone, with no attempt counted."""
        self._asks.append(replace(ask, suspect=True))

    def isolate(self, indices: Iterable[int]) -> None:
        """Send these documents alone from now on."""
        self._isolated.update(indices)
        self._asks = [self._marked(ask) for ask in self._asks]

    def take(self) -> list[Ask]:
        """All that is to be sent; none is left."""
        asks, self._asks = self._asks, []
        return asks

    def _marked(self, ask: Ask) -> Ask:
        return replace(ask, suspect=ask.suspect or ask.index in self._isolated)
