"""What is reported of a denoiser of embeddings: recovery by noise level, and its text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from raydiff.models.embedding import EmbeddingDenoiser
from raydiff.train.batches import TokenisedPairs
from raydiff.train.embedding_evaluate import recovery
from tests.models import tiny_embedding as tiny


class Knowing(EmbeddingDenoiser):
    """Predicts the clean embeddings, or those of another token, whatever the noise."""

    def __init__(self, denoiser: EmbeddingDenoiser, shift: int) -> None:
        super().__init__(denoiser.model, denoiser.spec)
        self.shift = shift

    def embed(self, tokens_BL: Tensor) -> Tensor:
        self.tokens = tokens_BL
        return super().embed(tokens_BL)

    def predict(self, latents_BLE: Tensor, *rest: Tensor) -> Tensor:
        return super().embed(4 + (self.tokens - 4 + self.shift) % (tiny.VOCAB - 4))


@pytest.mark.parametrize(("shift", "share"), [(0, 1.0), (1, 0.0)])
def test_recovery_is_the_share_of_right_tokens(tmp_path: Path, shift: int, share: float) -> None:
    denoiser = Knowing(tiny.load(tiny.save(tmp_path, tiny.OWN, tiny.weights(cross=False))), shift)
    generator = np.random.default_rng(0)
    rows = [generator.integers(4, tiny.VOCAB, size=tiny.TARGET_TOKENS) for _ in range(5)]
    pairs = TokenisedPairs(documents=rows, summaries=rows, groups=np.arange(5))
    torch.manual_seed(0)
    assert recovery(denoiser, pairs, 0.7) == share
