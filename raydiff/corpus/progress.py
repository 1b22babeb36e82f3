"""How far a run is: a bar on a terminal, a plain line now and then without one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from raydiff.corpus.report import Session

_BAR_CELLS = 24
_LINE_EVERY_S = 5.0


class Progress:
    """Shows documents done, documents/s, output tokens/s and the time left.

    Rates are of this start of the run, the bar is of the whole run.
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
        self._shown_s = clock()
        self.update(Session())

    def update(self, session: Session) -> None:
        """Show the state after another shard was committed."""
        now_s = self._clock()
        last = self._before + session.documents >= self._total
        if self._terminal:
            self._stream.write(f"\r\x1b[K{self._bar(session)} {self._line(session)}")
            self._stream.flush()
        elif last or not session.shards or now_s - self._shown_s >= _LINE_EVERY_S:
            self._shown_s = now_s
            print(self._line(session), file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the bar on a line of its own."""
        if self._terminal:
            self._stream.write("\n")
            self._stream.flush()

    def _bar(self, session: Session) -> str:
        done = self._before + session.documents
        cells = _BAR_CELLS * done // self._total if self._total else _BAR_CELLS
        return f"[{'#' * cells}{'.' * (_BAR_CELLS - cells)}]"

    def _line(self, session: Session) -> str:
        done = self._before + session.documents
        parts = [f"{done}/{self._total} documents"]
        if session.failed:
            parts.append(f"{session.failed} failed")
        if session.seconds > 0:
            parts.append(f"{session.documents_per_s:.1f} documents/s")
            parts.append(f"{session.output_tokens_per_s:.0f} output tokens/s")
        left = self._total - done
        if left and session.documents_per_s > 0:
            parts.append(f"{_duration(left / session.documents_per_s)} left")
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
