"""Lanes: whose forward is next. Interactive requests go first. Knows no torch."""

from __future__ import annotations

import math

from raydiff.config import EngineSettings
from raydiff.request import Lane

WINDOW_S = 10.0
"""Forward time over which the batch lane's least share is kept."""
EXPECT_S = 120.0
"""How long after an interactive request another is taken to be likely."""


class Lanes:
    """Chooses the lane of each forward."""

    def __init__(self, settings: EngineSettings) -> None:
        self._least_share = settings.batch_share
        self._share = 1.0
        self._last: Lane = "batch"
        self._seen_s = -math.inf

    def arrived(self, lane: Lane, now_s: float) -> None:
        """A request came in."""
        if lane == "interactive":
            self._seen_s = now_s

    def expects_interactive(self, now_s: float) -> bool:
        """Whether an interactive request may come during the next forward."""
        return now_s - self._seen_s < EXPECT_S

    def next(self, *, interactive: bool, batch: bool) -> Lane:
        """Whose forward is next, of the lanes that have admitted requests.

        Interactive, but where that never pauses the batch lane has one forward between two of its
        own, as often as its least share asks for.
        """
        if not interactive:
            return "batch"
        due = batch and self._last == "interactive" and self._share < self._least_share
        return "batch" if due else "interactive"

    def ran(self, lane: Lane, seconds: float, *, batch_waited: bool) -> None:
        """A forward of `lane` is done; did batch requests wait meanwhile?"""
        self._last = lane
        if lane == "batch" or batch_waited:
            target = 1.0 if lane == "batch" else 0.0
            self._share += (target - self._share) * -math.expm1(-seconds / WINDOW_S)
