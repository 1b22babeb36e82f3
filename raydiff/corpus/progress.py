"""How far a run is: a bar on a terminal, a plain line now and then without one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

from raydiff.corpus.report import Session

_BAR_CELLS = 24
_FIRST_LINES_S = 5.0
_LAST_LINES_S = 60.0
_RECENT_S = 120.0
_RECENT_COMMITS = 8
"""Fewer say little about the speed of the moment."""


class Progress:
    """Shows documents, output tokens, both a second, failures, replicas and the time left.

    Rates are those of the last two minutes, so that they follow the replicas that come and go;
    the bar is of the whole run. Without a terminal, lines come every few seconds at first and
    once a minute in the end.
    """

    def __init__(
        self,
        total: int,
        done: int,
        stream: TextIO,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`done` of `total` documents were committed by earlier starts."""
        self._total = total
        self._before = done
        self._stream = stream
        self._terminal = stream.isatty()
        self._clock = clock
        self._began_s = self._shown_s = clock()
        self._said = ""
        self._commits: deque[tuple[float, int, int]] = deque()
        self.update(Session())

    def update(self, session: Session) -> None:
        """Show the state: after a commit, or because time has passed."""
        self._note(session)
        now_s = self._clock()
        last = self._before + session.documents >= self._total
        if self._terminal:
            self._stream.write(f"\r\x1b[K{self._bar(session)} {self._line(session)}")
            self._stream.flush()
        elif last or not session.shards or now_s - self._shown_s >= self._pause_s(now_s):
            if self._said == (line := self._line(session)):
                return
            self._shown_s = now_s
            self._said = line
            print(line, file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the bar on a line of its own."""
        if self._terminal:
            self._stream.write("\n")
            self._stream.flush()

    def _pause_s(self, now_s: float) -> float:
        return min(_LAST_LINES_S, max(_FIRST_LINES_S, (now_s - self._began_s) / 60.0))

    def _note(self, session: Session) -> None:
        """Remember commits of the last minutes."""
        sample = (session.last_s, session.documents, session.totals.completion_tokens)
        if not session.shards or (self._commits and self._commits[-1][1:] == sample[1:]):
            return
        self._commits.append(sample)
        while (
            len(self._commits) > _RECENT_COMMITS + 1
            and self._commits[1][0] < session.last_s - _RECENT_S
        ):
            self._commits.popleft()

    def _rates(self, session: Session) -> tuple[float, float]:
        """Documents and output tokens a second."""
        if len(self._commits) > _RECENT_COMMITS:
            (start_s, documents, tokens), end = self._commits[0], self._commits[-1]
            seconds = end[0] - start_s
            if seconds > 0:
                return (end[1] - documents) / seconds, (end[2] - tokens) / seconds
        return session.documents_per_s, session.output_tokens_per_s

    def _bar(self, session: Session) -> str:
        done = self._before + session.documents
        cells = _BAR_CELLS * done // self._total if self._total else _BAR_CELLS
        return f"[{'#' * cells}{'.' * (_BAR_CELLS - cells)}]"

    def _line(self, session: Session) -> str:
        done = self._before + session.documents
        parts = [f"{done:,}/{self._total:,} documents"]
        if session.failed:
            parts.append(f"{session.failed:,} failed")
        documents_per_s, tokens_per_s = self._rates(session)
        if session.seconds > 0:
            parts.append(f"{session.totals.completion_tokens:,} output tokens")
            parts.append(f"{documents_per_s:,.1f} documents/s")
            parts.append(f"{tokens_per_s:,.0f} output tokens/s")
        if session.replicas:
            parts.append(f"{session.replicas} replica{'s' if session.replicas > 1 else ''}")
        left = self._total - done
        if left and documents_per_s > 0:
            parts.append(f"{_duration(left / documents_per_s)} left")
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
