"""What was used in the last minute, second by second.

A sliding window, and no bucket that refills: a full bucket beside its refill lets twice the limit
through in the first minute. Of this no minute ever shows more than the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SLOTS = 61
"""Seconds that count: the current one, not yet over, and those of a whole minute."""


def slot_of(now_s: float) -> int:
    """The second that a moment is in."""
    return int(now_s // 1)


class Window:
    """Amounts by second; those older than a minute are forgotten."""

    def __init__(self) -> None:
        self._amounts: dict[int, int] = {}

    def add(self, now_s: float, amount: int) -> int:
        """Count an amount now; the slot is what `refund` takes."""
        slot = slot_of(now_s)
        self._amounts[slot] = self._amounts.get(slot, 0) + amount
        return slot

    def refund(self, slot: int, amount: int) -> None:
        """Take back a part of what was added then; nothing, when that is long ago."""
        if slot in self._amounts:
            self._amounts[slot] -= amount

    def replace(self, amounts: Mapping[int, int]) -> None:
        """Hold these amounts and no others."""
        self._amounts = dict(amounts)

    def amounts(self, now_s: float) -> dict[int, int]:
        """What counts at this moment, by second."""
        oldest = slot_of(now_s) - SLOTS + 1
        if any(slot < oldest for slot in self._amounts):
            self._amounts = {s: n for s, n in self._amounts.items() if s >= oldest}
        return self._amounts

    def total(self, now_s: float) -> int:
        """The sum of what counts at this moment."""
        return sum(self.amounts(now_s).values())


def wait_s(amounts: Iterable[tuple[int, int]], excess: int, now_s: float) -> float:
    """Seconds until so much of the amounts (slot, amount) no longer counts; all, at the most."""
    left, last = excess, slot_of(now_s) - SLOTS
    for slot, amount in sorted(amounts):
        if left <= 0:
            break
        left -= amount
        last = slot
    return max(0.0, last + SLOTS - now_s)
