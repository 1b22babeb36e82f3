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
    tokens = sampling.sample(
        sampling.tempered(logits, torch.full((rows,), temperature)).softmax(-1),
        torch.full((rows,), top_k),
        torch.full((rows,), top_p),
        torch.full((rows,), uniform),
    )
    confidence = sampling.confidence(logits, tokens, *sampling.greedy(logits))
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
    tokens = sampling.sample(
        (LOGITS / temperature).softmax(-1).expand(n, -1),
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
    k, p = torch.tensor([0, 3, 0, 9, 1, 0]), torch.tensor([1, 0.5, 0.9, 1, 1, 0.2])
    t = torch.rand(6, generator=torch.Generator().manual_seed(2)) + 0.5
    probs = sampling.tempered(logits, t).softmax(-1)
    together = sampling.sample(probs, k, p, uniforms)
    alone = [
        sampling.sample(probs[i : i + 1], k[i : i + 1], p[i : i + 1], uniforms[i : i + 1])
        for i in range(6)
    ]
    assert together.tolist() == [int(tokens[0]) for tokens in alone]


def test_end_tokens_are_biased_and_forbidden_per_position() -> None:
    logits = torch.zeros(2, 4)
    sampling.adjust_end(logits, torch.tensor([1]), 0.5, torch.tensor([False, True]))
    assert logits.tolist() == [[0, -0.5, 0, 0], [0, -math.inf, 0, 0]]


def test_every_end_token_is_forbidden_alike() -> None:
    """LLaDA's code bars a different tensor for each id, so that one stays possible."""
    logits = torch.zeros(1, 6)
    sampling.adjust_end(logits, torch.tensor([1, 4]), 0.0, torch.tensor([True]))
    assert logits.isinf().tolist() == [[False, True, False, False, True, False]]


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), temperature=st.floats(0.05, 20))
def test_without_top_k_and_top_p_a_draw_needs_no_order(seed: int, temperature: float) -> None:
    """It is the first token, in the order of the vocabulary, whose cumulative probability
    exceeds the uniform number."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(20, 30, generator=generator, dtype=torch.float64)
    uniforms = torch.rand(20, generator=generator, dtype=torch.float64)
    none, all_of_it = torch.zeros(20, dtype=torch.long), torch.ones(20)
    probs = (logits / temperature).softmax(-1)
    tokens = sampling.sample(probs, none, all_of_it, uniforms)
    cumulative = probs.cumsum(-1)
    assert tokens.tolist() == (cumulative <= uniforms[:, None]).sum(1).tolist()


def test_top_k_of_the_whole_vocabulary_has_the_same_distribution() -> None:
    """The sorted and the unsorted way agree over an even grid of uniforms."""
    n = 4000
    logits = torch.tensor([[0.5, 2.0, -1.0, 1.0]]).expand(n, -1)
    uniforms, probs = (torch.arange(n) + 0.5) / n, (logits / 0.8).softmax(-1)
    shares = []
    for top_k in (0, 4):
        tokens = sampling.sample(probs, torch.full((n,), top_k), torch.ones(n), uniforms)
        shares.append(torch.bincount(tokens, minlength=4) / n)
    torch.testing.assert_close(*shares, atol=1e-3, rtol=0)


@settings(deadline=None)
@given(seed=st.integers(0, 10**6))
def test_margin_and_entropy_are_those_of_the_distribution(seed: int) -> None:
    logits = torch.randn(5, 9, generator=torch.Generator().manual_seed(seed)) * 4
    sampling.forbid(logits, torch.tensor([2]))
    top = logits.softmax(-1).sort(descending=True).values
    torch.testing.assert_close(sampling.margin(logits), top[:, 0] - top[:, 1])
    torch.testing.assert_close(
        sampling.entropy(logits.softmax(-1)),
        torch.distributions.Categorical(logits=logits).entropy(),
    )


def test_a_certain_token_has_margin_one_and_no_entropy() -> None:
    logits = torch.tensor([[0.0, -math.inf, -math.inf]])
    assert sampling.margin(logits).tolist() == [1]
    assert sampling.entropy(logits.softmax(-1)).tolist() == [0]


def test_temperatures_divide_logits_where_there_are_any() -> None:
    """0 means greedy: the distribution stays that of the model."""
    logits = LOGITS.expand(3, -1)
    found = sampling.tempered(logits, torch.tensor([0.5, 0.0, 2.0]))
    torch.testing.assert_close(found, logits * torch.tensor([[2.0], [1.0], [0.5]]))
    assert sampling.tempered(logits, None) is logits
