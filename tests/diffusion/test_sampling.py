"""Candidates and their confidence."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.diffusion import sampling

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0]])


def draw(
    logits: torch.Tensor, uniform: float, temperature: float = 1.0, top_k: int = 0, top_p: float = 1
) -> tuple[int, float]:
    rows = logits.shape[0]
    tokens, confidence = sampling.sample(
        logits,
        torch.full((rows,), temperature),
        torch.full((rows,), top_k),
        torch.full((rows,), top_p),
        torch.full((rows,), uniform),
    )
    return int(tokens[0]), float(confidence[0])


def test_greedy_takes_the_likeliest_with_its_probability() -> None:
    tokens, confidence = sampling.greedy(LOGITS)
    assert tokens.tolist() == [0]
    assert confidence.item() == pytest.approx(LOGITS.softmax(-1)[0, 0].item())


def test_greedy_ties_go_to_the_lowest_id() -> None:
    assert sampling.greedy(torch.zeros(1, 9))[0].tolist() == [0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampling_inverts_the_cumulative_distribution(temperature: float) -> None:
    """Over an even grid of uniforms each token comes as often as its probability says."""
    n = 4000
    uniforms = (torch.arange(n) + 0.5) / n
    tokens, _ = sampling.sample(
        LOGITS.expand(n, -1),
        torch.full((n,), temperature),
        torch.zeros(n, dtype=torch.long),
        torch.ones(n),
        uniforms,
    )
    share = torch.bincount(tokens, minlength=4) / n
    torch.testing.assert_close(share, (LOGITS[0] / temperature).softmax(-1), atol=2e-3, rtol=0)


def test_top_k_keeps_the_k_likeliest() -> None:
    assert {draw(LOGITS, u / 50, top_k=2)[0] for u in range(50)} == {0, 1}
    assert {draw(LOGITS, u / 50, top_k=1)[0] for u in range(50)} == {0}


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    first, second = LOGITS.softmax(-1)[0, :2].tolist()
    assert {draw(LOGITS, u / 50, top_p=first - 0.01)[0] for u in range(50)} == {0}
    assert {draw(LOGITS, u / 50, top_p=first + second - 0.01)[0] for u in range(50)} == {0, 1}


def test_confidence_is_untempered() -> None:
    for temperature in (0.1, 1.0, 5.0):
        token, confidence = draw(LOGITS, 0.9, temperature)
        assert confidence == pytest.approx(LOGITS.softmax(-1)[0, token].item(), rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    uniform=st.floats(0, 1, exclude_max=True, width=32),
    top_p=st.floats(0.01, 1.0),
    top_k=st.integers(0, 8),
    temperature=st.floats(0.05, 20),
)
def test_a_forbidden_token_is_never_drawn(
    seed: int, uniform: float, top_p: float, top_k: int, temperature: float
) -> None:
    logits = torch.randn(1, 8, generator=torch.Generator().manual_seed(seed)) * 3
    sampling.forbid(logits, torch.tensor([0, 3, 7]))
    token, confidence = draw(logits, uniform, temperature, top_k, top_p)
    assert token not in (0, 3, 7)
    assert 0 < confidence <= 1


def test_a_row_draws_the_same_beside_any_other() -> None:
    logits = torch.randn(6, 32, generator=torch.Generator().manual_seed(0))
    uniforms = torch.rand(6, generator=torch.Generator().manual_seed(1))
    k, p, t = (
        torch.tensor([0, 3, 0, 9, 1, 0]),
        torch.tensor([1, 0.5, 0.9, 1, 1, 0.2]),
        torch.rand(6) + 0.5,
    )
    together = sampling.sample(logits, t, k, p, uniforms)[0]
    alone = [
        sampling.sample(
            logits[i : i + 1], t[i : i + 1], k[i : i + 1], p[i : i + 1], uniforms[i : i + 1]
        )
        for i in range(6)
    ]
    assert together.tolist() == [int(tokens[0]) for tokens, _ in alone]


def test_end_tokens_are_biased_and_forbidden_per_position() -> None:
    logits = torch.zeros(2, 4)
    sampling.adjust_end(logits, torch.tensor([1]), 0.5, torch.tensor([False, True]))
    assert logits.tolist() == [[0, -0.5, 0, 0], [0, -math.inf, 0, 0]]
