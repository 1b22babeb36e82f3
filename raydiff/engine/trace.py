"""Trace: the last forwards, whose they were and who waited meanwhile. Knows no torch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from raydiff.request import Lane, StepKind

KEPT = 8192
"""Forwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRecord:
    """One forward."""

    tick: int
    kind: StepKind
    lane: Lane
    """Whose forward it was; the other lane's rows rode along."""
    interactive_rows: int
    batch_rows: int
    interactive_ready: int
    """Interactive requests admitted when the forward was chosen, whether they are in it or not."""
    interactive_waiting: int
    """Interactive requests not admitted then."""
    batch_waiting: int
    waited: int | None
    """Of the interactive requests whose first forward this is: the most forwards of the batch lane
    that one of them waited for since it was submitted."""
    began_s: float
    """Monotonic."""
    seconds: float

    @property
    def ended_s(self) -> float:
        return self.began_s + self.seconds


class Trace:
    """A ring of records; one thread adds, any may read."""

    def __init__(self) -> None:
        self._records: deque[ForwardRecord] = deque(maxlen=KEPT)

    def add(self, record: ForwardRecord) -> None:
        """Keep a record, in place of the oldest when there are many."""
        self._records.append(record)

    def records(self) -> list[ForwardRecord]:
        """What is kept, oldest first."""
        return list(self._records)

    def batch_forwards_since(self, moment_s: float) -> int:
        """Forwards of the batch lane that ended after a moment."""
        count = 0
        for record in reversed(self._records):
            if record.ended_s <= moment_s:
                break
            count += record.lane == "batch"
        return count
