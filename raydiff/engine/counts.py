"""What an engine has done since it was loaded, as exact sums: a Recorder that passes all on."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from raydiff.metrics import Recorder
from raydiff.request import RequestStats, StepStats


@dataclass(frozen=True, kw_only=True)
class Work:
    """Sums over an engine's forwards; the difference of two is what lies between them."""

    busy_s: float = 0.0
    """Seconds in forwards."""
    forwards: int = 0
    rows: int = 0
    positions: int = 0
    """Positions computed."""
    padding: int = 0
    """Positions that rows were padded with."""
    context: int = 0
    """Cached positions attended to."""
    context_padding: int = 0
    """Cached positions read beside those."""

    def __add__(self, other: Work) -> Work:
        return Work(**{name: value + getattr(other, name) for name, value in asdict(self).items()})

    def __sub__(self, other: Work) -> Work:
        return Work(**{name: value - getattr(other, name) for name, value in asdict(self).items()})

    @property
    def padding_share(self) -> float:
        """Padding over all positions of the forwards' own tensors."""
        return _share(self.padding, self.positions)

    @property
    def context_padding_share(self) -> float:
        """Padding over all cached positions that were read."""
        return _share(self.context_padding, self.context)

    @property
    def rows_per_forward(self) -> float:
        return self.rows / self.forwards if self.forwards else 0.0


class WorkCounter:
    """Adds up an engine's work; read from any thread."""

    def __init__(self, inner: Recorder) -> None:
        """`inner` gets every record too."""
        self._inner = inner
        self.work = Work()

    def on_step(self, stats: StepStats) -> None:
        self.work += Work(
            busy_s=stats.forward_s,
            forwards=1,
            rows=stats.rows,
            positions=stats.positions,
            padding=stats.padded_positions,
            context=stats.context_positions,
            context_padding=stats.padded_context_positions,
        )
        self._inner.on_step(stats)

    def on_request(self, stats: RequestStats) -> None:
        self._inner.on_request(stats)


def _share(part: int, rest: int) -> float:
    total = part + rest
    return part / total if total else 0.0
