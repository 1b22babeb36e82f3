"""What an evaluation found: scores of each document, means with intervals, and the choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from raydiff.bench.evaluation.bootstrap import LEVEL, interval
from raydiff.bench.evaluation.choice import Candidate, Choice, choose
from raydiff.bench.evaluation.generation import Measured
from raydiff.bench.evaluation.scores import METRICS, RougeScorer, Scores, score
from raydiff.bench.sample import Document


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """How settings are judged."""

    metric: str
    """One of `QUALITY`."""
    max_loss: float
    reference: str | None
    """The setting that losses are measured against; `None` is the best."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A measured setting with the scores of each document; `None` where it failed."""

    measured: Measured
    scores: tuple[Scores | None, ...]

    @property
    def name(self) -> str:
        return self.measured.setting.name

    def values(self, metric: str) -> list[float]:
        """The defined values of a metric."""
        found = (scores[metric] for scores in self.scores if scores is not None)
        return [value for value in found if value is not None]


def score_all(
    documents: Sequence[Document], measured: Measured, rouge: RougeScorer | None
) -> Scored:
    """Score what a setting wrote in its first round."""
    pairs = zip(documents, measured.outcomes, strict=True)
    return Scored(
        measured=measured,
        scores=tuple(
            None if o.text is None else score(str(d.text), o.text, d.reference, rouge)
            for d, o in pairs
        ),
    )


def judge(
    documents: Sequence[Document], scored: Sequence[Scored], criterion: Criterion, seed: int
) -> Choice:
    """Choose among the settings.

    A document that failed, or for which nothing was written, counts 0. One without a reference
    does not count where the metric needs one.
    """
    metric = METRICS[criterion.metric]
    counted = [i for i, d in enumerate(documents) if d.reference or not metric.needs_reference]
    candidates = [
        Candidate(
            name=one.name,
            quality=tuple(_quality(one.scores[i], criterion.metric) for i in counted),
            speed=one.measured.output_tokens_per_s,
        )
        for one in scored
    ]
    return choose(candidates, max_loss=criterion.max_loss, reference=criterion.reference, seed=seed)


def _quality(scores: Scores | None, metric: str) -> float:
    value = None if scores is None else scores[metric]
    return 0.0 if value is None else value


def summarise(
    scored: Sequence[Scored], choice: Choice, criterion: Criterion, seed: int
) -> dict[str, Any]:
    """The findings as JSON values; they hold no text of any document."""
    by_name = {one.name: one for one in scored}
    fastest = by_name[choice.fastest].measured
    against = by_name[choice.reference].measured
    verdicts = {verdict.name: asdict(verdict) for verdict in choice.verdicts}
    quickest = max(
        (by_name[v.name] for v in choice.verdicts if v.within),
        key=lambda one: one.measured.documents_per_s,
    )
    return {
        "metric": criterion.metric,
        "max_loss": criterion.max_loss,
        "confidence": LEVEL,
        "reference": choice.reference,
        "fastest": choice.fastest,
        "fastest_by_documents": quickest.name,
        "speedup": fastest.output_tokens_per_s / against.output_tokens_per_s,
        "settings": [{**_described(one, seed), **verdicts[one.name]} for one in scored],
    }


def _described(one: Scored, seed: int) -> dict[str, Any]:
    measured = one.measured
    totals = measured.rounds[0].totals
    errors = Counter(o.error_type for o in measured.outcomes if o.error_type)
    return {
        "name": one.name,
        "decoding": measured.setting.decoding.given(),
        "documents": len(measured.outcomes),
        "failed": sum(errors.values()),
        "error_types": dict(sorted(errors.items())),
        "output_tokens": totals.completion_tokens,
        "forwards": totals.forwards,
        "tokens_per_forward": totals.completion_tokens / totals.forwards if totals.forwards else 0,
        "output_tokens_per_s": measured.output_tokens_per_s,
        "output_tokens_per_s_rounds": [r.output_tokens_per_s for r in measured.rounds],
        "documents_per_s": measured.documents_per_s,
        "same_text": measured.same_text,
        "metrics": {name: _estimate(one.values(name), seed) for name in METRICS},
    }


def _estimate(values: Sequence[float], seed: int) -> dict[str, Any] | None:
    found = interval(values, seed)
    if found is None:
        return None
    return {"mean": fmean(values), "low": found[0], "high": found[1], "documents": len(values)}
