"""How long to wait for an answer before the one who owes it is taken to be stuck."""

from __future__ import annotations

import math
from collections import deque

_KEPT = 64
_TIMES = 10.0
"""A call this many times longer than any lately is not slow but stuck. Calls differ by the length
of their documents and by the queue they wait in, both within what the last calls show."""


class ServiceTimes:
    """How long the last calls took."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_KEPT)

    def add(self, seconds: float) -> None:
        """Note a call that was answered."""
        self._seconds.append(seconds)

    @property
    def longest_s(self) -> float:
        """The longest of the last calls; 0 before the first."""
        return max(self._seconds, default=0.0)

    def patience_s(self, floor_s: float) -> float:
        """How long a call may take; without limit before the first was answered."""
        return max(floor_s, _TIMES * self.longest_s) if self._seconds else math.inf
