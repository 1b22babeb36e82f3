"""Trace credit, against the published form with a credit for every token."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.diffusion.credit import add_boost

N, V = 6, 5


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), forwards=st.integers(1, 6))
def test_the_history_holds_the_whole_credit_matrix(seed: int, forwards: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.zeros(N, V)
    best, confidence = torch.zeros(N, 0, dtype=torch.long), torch.zeros(N, 0)
    for _ in range(forwards):
        logits = torch.randn(N, V, generator=generator) * 2
        top = logits.softmax(-1).max(-1)
        matrix = matrix * 0.8
        matrix[torch.arange(N), top.indices] += top.values**0.2
        expected = logits + 0.7 * (1 + matrix).log()
        new_best, new_confidence = add_boost(logits, best, confidence)
        torch.testing.assert_close(logits, expected)
        torch.testing.assert_close(new_confidence, top.values)
        assert torch.equal(new_best, top.indices)
        best = torch.cat((best, new_best[:, None]), 1)
        confidence = torch.cat((confidence, new_confidence[:, None]), 1)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), empty=st.integers(0, 4))
def test_a_shorter_history_may_be_padded(seed: int, empty: int) -> None:
    """Forwards that a row did not have count as nothing, whatever token stands there."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(N, V, generator=generator)
    best = torch.randint(V, (N, 3), generator=generator)
    confidence = torch.rand(N, 3, generator=generator)
    padded = logits.clone()
    add_boost(logits, best, confidence)
    add_boost(
        padded,
        torch.cat((torch.zeros(N, empty, dtype=torch.long), best), 1),
        torch.cat((torch.zeros(N, empty), confidence), 1),
    )
    assert torch.equal(logits, padded)


def test_a_position_gains_the_same_alone() -> None:
    """To the bit: not even rounding depends on where in the batch it stands."""
    generator = torch.Generator().manual_seed(0)
    many = 500
    logits = torch.randn(many, V, generator=generator)
    best = torch.randint(V, (many, 3), generator=generator)
    confidence = torch.rand(many, 3, generator=generator)
    together = logits.clone()
    add_boost(together, best, confidence)
    for i in range(many):
        alone = logits[i : i + 1].clone()
        add_boost(alone, best[i : i + 1], confidence[i : i + 1])
        assert torch.equal(alone[0], together[i])


def test_a_token_predicted_again_and_again_gains_confidence() -> None:
    best, confidence = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, 0)
    seen = []
    for _ in range(4):
        logits = torch.tensor([[1.0, 0.5, 0.0]])
        new_best, new_confidence = add_boost(logits, best, confidence)
        best = torch.cat((best, new_best[:, None]), 1)
        confidence = torch.cat((confidence, new_confidence[:, None]), 1)
        seen.append(float(logits.softmax(-1)[0, 0]))
    assert seen == sorted(set(seen))


def test_an_impossible_token_stays_so() -> None:
    logits = torch.tensor([[float("-inf"), 1.0]])
    add_boost(logits, torch.tensor([[0]]), torch.tensor([[0.9]]))
    assert logits[0, 0] == float("-inf")
    assert logits[0, 1].isfinite()
