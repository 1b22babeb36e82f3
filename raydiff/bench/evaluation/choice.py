"""Which setting to take: the fastest whose loss of quality is within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from raydiff.bench.evaluation.bootstrap import interval, loss_bound


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A setting's quality, document by document, and its speed."""

    name: str
    quality: tuple[float, ...]
    """Of each document, in the same order for all candidates; in [0, 1]."""
    speed: float

    @property
    def mean(self) -> float:
        return fmean(self.quality)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A setting beside the reference."""

    name: str
    quality: float
    """Its mean, with its interval."""
    quality_low: float
    quality_high: float
    loss: float
    """Mean quality of the reference minus this one's."""
    loss_bound: float
    """What the loss stays below with the bootstrap's confidence."""
    within: bool
    on_front: bool
    """Whether no other setting is at least as good and as fast, and better in one of the two."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What an evaluation recommends."""

    reference: str
    """What losses are measured against."""
    fastest: str
    """The fastest setting within the loss; the reference at worst."""
    verdicts: tuple[Verdict, ...]


def choose(
    candidates: Sequence[Candidate], *, max_loss: float, reference: str | None, seed: int
) -> Choice:
    """Judge every setting against the reference; by default against the best on average.

    A setting is within the loss when the paired bootstrap's bound on its loss is: noise in few
    documents speaks against a setting, never for it.
    """
    best = max(candidates, key=lambda c: (c.mean, c.speed))
    against = next((c for c in candidates if c.name == reference), best)
    verdicts = [_verdict(c, against, max_loss, candidates, seed) for c in candidates]
    within = {v.name for v in verdicts if v.within}
    fastest = max((c for c in candidates if c.name in within), key=lambda c: c.speed)
    return Choice(reference=against.name, fastest=fastest.name, verdicts=tuple(verdicts))


def _verdict(
    one: Candidate,
    against: Candidate,
    max_loss: float,
    candidates: Sequence[Candidate],
    seed: int,
) -> Verdict:
    losses = [b - a for a, b in zip(one.quality, against.quality, strict=True)]
    bound = loss_bound(losses, seed)
    low, high = interval(one.quality, seed) or (one.mean, one.mean)
    return Verdict(
        name=one.name,
        quality=one.mean,
        quality_low=low,
        quality_high=high,
        loss=fmean(losses),
        loss_bound=bound,
        within=bound <= max_loss or one.name == against.name,
        on_front=one.name in front({c.name: (c.speed, c.mean) for c in candidates}),
    )


Point = tuple[float, float]


def front(points: Mapping[str, Point]) -> list[str]:
    """Names of the points (speed, quality) that no other point dominates, slowest first."""
    kept = [name for name, point in points.items() if not _dominated(point, points.values())]
    return sorted(kept, key=lambda name: points[name])


def _dominated(point: Point, others: Iterable[Point]) -> bool:
    return any(other != point and other[0] >= point[0] and other[1] >= point[1] for other in others)
