"""Figures of a case: percentiles over its requests, rates over its steady time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from raydiff.bench.serving.loads import Outcome
from raydiff.bench.serving.settings import Case

PERCENTS = (50, 90, 95, 99)
OK = 200


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One contender under one load, once."""

    outcomes: tuple[Outcome, ...]
    """By index, warm-up first."""
    warm_up: int
    processes: int
    """That generated the load."""
    generator_cpu_s: float
    rows_per_forward: float | None
    busy_s: float | None
    """Seconds that engines spent in forwards."""
    cpu_ms_per_request: Mapping[str, float]

    @property
    def measured(self) -> tuple[Outcome, ...]:
        """All but the warm-up."""
        return self.outcomes[self.warm_up :]

    @property
    def window(self) -> tuple[float, float]:
        """From the first request after the warm-up to the last one sent, in which the load is even;
        to the last one's end where none ended in it."""
        begin = min(outcome.due_s for outcome in self.measured)
        end = max(outcome.due_s for outcome in self.measured)
        if any(begin < outcome.done_s <= end for outcome in self.outcomes):
            return begin, end
        return begin, max(outcome.done_s for outcome in self.measured)

    @property
    def seconds(self) -> float:
        """Of the window."""
        begin, end = self.window
        return end - begin

    @property
    def requests_per_s(self) -> float:
        """Answered in the window."""
        return len(self._ended()) / self.seconds

    @property
    def output_tokens_per_s(self) -> float:
        """Of requests answered in the window."""
        return sum(outcome.tokens for outcome in self._ended()) / self.seconds

    @property
    def whole_s(self) -> float:
        """From the first request sent to the last one's end."""
        begin = min(outcome.due_s for outcome in self.outcomes)
        return max(outcome.done_s for outcome in self.outcomes) - begin

    def _ended(self) -> list[Outcome]:
        begin, end = self.window
        return [o for o in self.outcomes if begin < o.done_s <= end and o.status == OK]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` of ascending values lie, between neighbours by interpolation.

    There must be a value.
    """
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def percentiles(seconds: Iterable[float]) -> dict[str, float]:
    """Percentiles and the largest; empty without values."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    found = {f"p{percent}_s": percentile(ordered, percent) for percent in PERCENTS}
    return {**found, "max_s": ordered[-1]}


def case_record(case: Case, turns: Sequence[Turn]) -> dict[str, Any]:
    """A case's part of the report: medians over its turns, percentiles over all their requests."""
    measured = [outcome for turn in turns for outcome in turn.measured]
    good = [outcome for outcome in measured if outcome.status == OK]
    whole_s = sum(turn.whole_s for turn in turns)
    return {
        "contender": case.contender,
        "clients": case.clients or None,
        "rate_per_s": case.rate_per_s or None,
        "prompts_per_request": case.prompts_per_request,
        "requests": len(measured),
        "success_rate": len(good) / len(measured),
        "statuses": {str(k): v for k, v in sorted(Counter(o.status for o in measured).items())},
        "seconds": [turn.seconds for turn in turns],
        "requests_per_s": median(turn.requests_per_s for turn in turns),
        "output_tokens_per_s": median(turn.output_tokens_per_s for turn in turns),
        "rows_per_forward": _median(turn.rows_per_forward for turn in turns),
        "busy": _median(None if t.busy_s is None else t.busy_s / t.whole_s for t in turns),
        "total": percentiles(o.done_s - o.due_s for o in good),
        "first_text": percentiles(o.first_s - o.due_s for o in good if o.first_s is not None),
        "per_output_token": percentiles((o.done_s - o.due_s) / o.tokens for o in good if o.tokens),
        "generator": {
            "processes": turns[0].processes,
            "cpu": sum(turn.generator_cpu_s for turn in turns) / whole_s,
            "late": percentiles(o.sent_s - o.due_s for o in measured),
        },
        "cpu_ms_per_request": _medians([turn.cpu_ms_per_request for turn in turns]),
    }


def comparisons(turns: Mapping[Case, Sequence[Turn]]) -> list[dict[str, Any]]:
    """Each contender over each other one that stands before it, under the same load.

    Ratios are medians over the rounds; `added_ms` is what a request takes longer in the median, but
    not over `bare`, whose requests wait for rows.
    """
    found = []
    for case, mine in turns.items():
        for other, theirs in turns.items():
            if other == case:
                break
            if other.load == case.load:
                found.append(_comparison(case, mine, other, theirs))
    return found


def _comparison(
    case: Case, mine: Sequence[Turn], other: Case, theirs: Sequence[Turn]
) -> dict[str, Any]:
    pairs = list(zip(mine, theirs, strict=True))
    return {
        "of": case.contender,
        "over": other.contender,
        "clients": case.clients or None,
        "rate_per_s": case.rate_per_s or None,
        "prompts_per_request": case.prompts_per_request,
        "tokens_ratio": median(a.output_tokens_per_s / b.output_tokens_per_s for a, b in pairs),
        "added_ms": None
        if other.contender == "bare"
        else 1000 * median(_middle_s(a) - _middle_s(b) for a, b in pairs),
    }


def _middle_s(turn: Turn) -> float:
    return median(outcome.done_s - outcome.due_s for outcome in turn.measured)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _medians(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sorted({name for one in found for name in one})
    return {name: median(one.get(name, 0.0) for one in found) for name in names}
