"""Rounding finds the token whose embedding it is given, by every rule."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raydiff.diffusion import rounding


def table(vocab: int = 12, width: int = 6, seed: int = 0) -> Tensor:
    return torch.randn((vocab, width), generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=40)
@given(vocab=st.integers(1, 20), seed=st.integers(0, 99))
def test_rounding_an_embedding_gives_its_token(vocab: int, seed: int) -> None:
    embeddings = table(vocab, seed=seed)
    for scores in (rounding.euclidean, rounding.cosine):
        assert rounding.nearest(scores(embeddings, embeddings)).tolist() == list(range(vocab))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 99))
def test_euclidean_scores_are_minus_the_squared_distances(seed: int) -> None:
    x, embeddings = table(5, seed=seed + 1), table(seed=seed)
    distances = torch.cdist(x, embeddings) ** 2
    torch.testing.assert_close(rounding.euclidean(x, embeddings), -distances, atol=1e-3, rtol=1e-3)


def test_cosine_ignores_length_and_euclidean_does_not() -> None:
    embeddings = torch.tensor([[1.0, 0.0], [3.0, 0.3]])
    x = torch.tensor([[9.0, 0.0]])
    assert rounding.nearest(rounding.cosine(x, embeddings)).item() == 0
    assert rounding.nearest(rounding.euclidean(x, embeddings)).item() == 1


def test_ties_go_to_the_lowest_token() -> None:
    assert rounding.nearest(torch.tensor([[1.0, 2.0, 2.0]])).item() == 1


def test_gumbel_noise_samples_the_softmax() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]]).expand(20000, 3)
    uniforms = torch.rand((20000, 3), generator=torch.Generator().manual_seed(0))
    temperature = torch.full((20000,), 2.0)
    tokens = rounding.nearest(rounding.gumbel(logits, temperature, uniforms))
    shares = torch.bincount(tokens, minlength=3) / 20000
    torch.testing.assert_close(shares, (logits[0] / 2).softmax(dim=0), atol=0.015, rtol=0)


def test_gumbel_at_temperature_0_is_greedy_and_survives_extreme_uniforms() -> None:
    logits = torch.tensor([[0.0, 3.0, -1.0], [0.0, 3.0, -1.0]])
    uniforms = torch.tensor([[1 - 2**-24, 0.0, 0.0], [0.0, 0.0, 0.0]])
    cold = rounding.gumbel(logits, torch.zeros(2), uniforms)
    assert rounding.nearest(cold).tolist() == [1, 1]
    warm = rounding.gumbel(logits, torch.ones(2), uniforms)
    assert torch.isfinite(warm).all()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 99))
def test_expected_embedding_narrows_to_the_best_token(seed: int) -> None:
    embeddings = table(seed=seed)
    scores = table(4, 12, seed=seed + 1)
    best = embeddings[rounding.nearest(scores)]
    cold = rounding.expected(scores, torch.zeros(4), embeddings)
    assert torch.equal(cold, best)
    nearly = rounding.expected(scores, torch.full((4,), 1e-4), embeddings)
    torch.testing.assert_close(nearly, best, atol=1e-2, rtol=1e-2)
    hot = rounding.expected(scores, torch.full((4,), 1e6), embeddings)
    torch.testing.assert_close(hot, embeddings.mean(dim=0).expand(4, -1), atol=1e-4, rtol=1e-4)


def test_entropy_is_in_nats_and_skips_impossible_tokens() -> None:
    scores = torch.tensor([[0.0, 0.0, float("-inf")], [50.0, 0.0, 0.0]])
    assert rounding.entropy(scores).tolist() == pytest.approx([0.693147, 0.0], abs=1e-5)
