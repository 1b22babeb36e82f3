"""The scores of one generated text: their catalogue, and how they are computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raydiff.bench.evaluation import faithfulness
from raydiff.bench.evaluation.words import words

Scores = dict[str, float | None]
"""One value for each of `METRICS`; `None` where it is not defined."""

RougeScorer = Callable[[str, str], dict[str, float]]
"""Takes a text and its reference."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One score."""

    help: str
    is_quality: bool = False
    """Whether more of it is better and it lies in [0, 1], so that settings can be judged by it."""
    needs_reference: bool = False


METRICS: dict[str, Metric] = {
    "rouge1": Metric(
        help="ROUGE-1 F1 against the reference", is_quality=True, needs_reference=True
    ),
    "rouge2": Metric(
        help="ROUGE-2 F1 against the reference", is_quality=True, needs_reference=True
    ),
    "rougeL": Metric(
        help="ROUGE-L F1 against the reference", is_quality=True, needs_reference=True
    ),
    "reference_length_ratio": Metric(
        help="words over those of the reference", needs_reference=True
    ),
    "coverage": Metric(
        help="copy rate: share of words that stand in the document", is_quality=True
    ),
    "density": Metric(help="mean length in words of the copied run that a word lies in"),
    "novel_1": Metric(help="share of distinct words that the document lacks"),
    "novel_2": Metric(help="share of distinct pairs of words that the document lacks"),
    "novel_3": Metric(help="share of distinct runs of three words that the document lacks"),
    "length_ratio": Metric(help="words over those of the document"),
    "distinct_1": Metric(help="distinct words over words", is_quality=True),
    "distinct_2": Metric(help="distinct pairs of words over pairs", is_quality=True),
    "distinct_3": Metric(help="distinct runs of three words over runs", is_quality=True),
    "repeated_run": Metric(help="words of the longest stretch that repeats what precedes it"),
    "empty": Metric(help="1 where nothing was written"),
}
QUALITY = tuple(name for name, metric in METRICS.items() if metric.is_quality)


def score(document: str, text: str, reference: str | None, rouge: RougeScorer | None) -> Scores:
    """All scores of a text written for a document.

    An empty text has ROUGE 0 and no rates of copying or repetition; without a reference (or an
    empty one) there is no ROUGE.
    """
    source, own = words(document), words(text)
    found: Scores = dict.fromkeys(METRICS)
    found["empty"] = float(not own)
    found["repeated_run"] = float(faithfulness.repeated_run(own))
    found["length_ratio"] = len(own) / len(source) if source else None
    for size in (1, 2, 3):
        found[f"novel_{size}"] = faithfulness.novel(source, own, size)
        found[f"distinct_{size}"] = faithfulness.distinct(own, size)
    if own:
        lengths = faithfulness.fragments(source, own)
        found["coverage"] = faithfulness.coverage(lengths, len(own))
        found["density"] = faithfulness.density(lengths, len(own))
    reference_words = words(reference or "")
    if reference and reference_words and rouge is not None:
        found |= rouge(text, reference)
        found["reference_length_ratio"] = len(own) / len(reference_words)
    return found
