"""ROUGE of one text against its reference, by rouge-score, in any script."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from raydiff.bench.evaluation.words import words
from raydiff.errors import UsageError

KINDS = ("rouge1", "rouge2", "rougeL")


class _Tokenizer:
    """rouge-score's own tokens where a word is ASCII; its tokenizer drops all others."""

    def __init__(self, default: Any) -> None:
        self._stem = lru_cache(2**16)(default.tokenize)

    def tokenize(self, text: str) -> list[str]:
        """The tokens that ROUGE compares."""
        found: list[str] = []
        for word in words(text):
            found += self._stem(word) if word.isascii() else [word]
        return found


class Rouge:
    """Scores pairs of texts; words are stemmed (Porter, English) as usual."""

    def __init__(self) -> None:
        """Load rouge-score.

        Raises:
            UsageError: it is not installed.
        """
        try:
            from rouge_score import rouge_scorer, tokenizers
        except ModuleNotFoundError as error:
            message = "ROUGE needs the package rouge-score: pip install 'raydiff[bench]'."
            raise UsageError(message) from error
        tokenizer = _Tokenizer(tokenizers.DefaultTokenizer(use_stemmer=True))
        self._scorer = rouge_scorer.RougeScorer(list(KINDS), tokenizer=tokenizer)

    def score(self, text: str, reference: str) -> dict[str, float]:
        """F1 of each kind, in [0, 1]; of an empty text it is 0."""
        return {
            kind: float(score.fmeasure)
            for kind, score in self._scorer.score(reference, text).items()
        }
