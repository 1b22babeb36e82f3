"""How close generated summaries are to the references: ROUGE F1, in points."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from raydiff.errors import UsageError

KINDS = ("rouge1", "rouge2", "rougeL")


def rouge(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Mean ROUGE-1, ROUGE-2 and ROUGE-L F1 (0 to 100), with stemming, by rouge-score.

    Raises:
        UsageError: rouge-score is not installed.
    """
    try:
        from rouge_score import rouge_scorer
    except ModuleNotFoundError as error:
        message = "ROUGE needs the package rouge-score: pip install 'raydiff[bench]'."
        raise UsageError(message) from error
    scorer = rouge_scorer.RougeScorer(list(KINDS), use_stemmer=True)
    scores = [scorer.score(r, p) for r, p in zip(references, predictions, strict=True)]
    return {kind: round(100 * fmean(s[kind].fmeasure for s in scores), 2) for kind in KINDS}
