"""History: what a row remembers of a block's earlier forwards. Numpy only.

Shapes: F positions of the frame, T forwards remembered.
"""

from __future__ import annotations

import numpy as np

from raydiff.engine.frame import Bools, Floats, Ints


class History:
    """Most likely tokens so far, how long they stood, and how sure commits were."""

    def __init__(self, length: int) -> None:
        self.best: Ints = np.full(length, -1, dtype=np.int64)
        """(F,) most likely token of the forward before; -1 at first."""
        self.stable: Ints = np.zeros(length, dtype=np.int64)
        """(F,) forwards for which that token has been the same."""
        self.confidence: Floats = np.ones(length, dtype=np.float32)
        """(F,) confidence at which a position last committed; 1 for given ones."""
        self.past_best: list[Ints] = []
        """(F,) per forward: most likely tokens, where they are kept."""
        self.past_confidence: list[Floats] = []

        self._confidence: Floats = self.confidence

    def see(self, best: Ints, best_confidence: Floats, confidence: Floats, scored: Bools) -> None:
        """Take in a forward: most likely tokens, their probabilities and the candidates' where
        `scored` (F,).
        """
        same = scored & (best == self.best)
        self.stable = np.where(same, self.stable + 1, 0)
        self.best = np.where(scored, best, -1)
        self.past_best.append(self.best)
        self.past_confidence.append(np.where(scored, best_confidence, 0).astype(np.float32))
        self._confidence = confidence

    def committed(self, where: Bools) -> None:
        """Remember how sure the last forward was of the commits at `where` (F,)."""
        self.confidence[where] = self._confidence[where]
