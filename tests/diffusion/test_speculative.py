"""Self-speculation loses nothing."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raydiff.diffusion.speculative import confirmed

WIDTH, VOCAB = 8, 6
seeds = st.integers(0, 10**6)


class Causal:
    """The next token depends on all before; the logits of a draft are verified at once."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._table = torch.randn(WIDTH, VOCAB, VOCAB, generator=generator)

    def next_tokens(self, tokens: Tensor) -> Tensor:
        """(R, W) most likely token at each place, given those before it."""
        steps = self._table[torch.arange(WIDTH), tokens].cumsum(1)
        before = torch.zeros_like(steps)
        before[:, 1:] = steps[:, :-1]
        return (before + self._table[:, 0]).argmax(-1)


def greedy(model: Causal, tokens: Tensor, is_open: Tensor) -> Tensor:
    """One token after another."""
    tokens = tokens.clone()
    for place in range(WIDTH):
        wanted = model.next_tokens(tokens)[:, place]
        tokens[:, place] = torch.where(is_open[:, place], wanted, tokens[:, place])
    return tokens


@settings(deadline=None, max_examples=60)
@given(seed=seeds)
def test_drafts_of_any_quality_end_in_greedy_decoding(seed: int) -> None:
    """In at most a verification a position, given tokens in between included."""
    generator = torch.Generator().manual_seed(seed)
    model = Causal(seed)
    tokens = torch.randint(VOCAB, (4, WIDTH), generator=generator)
    is_open = torch.rand(4, WIDTH, generator=generator) < 0.8
    expected = greedy(model, tokens, is_open)
    still = is_open.clone()
    for _ in range(WIDTH):
        guess = torch.randint(VOCAB, (4, WIDTH), generator=generator)
        good = torch.rand(4, WIDTH, generator=generator) < 0.7
        draft = torch.where(still, torch.where(good, expected, guess), tokens)
        verified = model.next_tokens(draft)
        commit = confirmed(draft, verified, still)
        assert (commit.any(1) == still.any(1)).all()
        tokens = torch.where(commit, verified, tokens)
        still &= ~commit
    assert not still.any()
    assert torch.equal(tokens, expected)


def test_a_perfect_draft_is_confirmed_at_once() -> None:
    draft = torch.tensor([[1, 2, 3]])
    assert confirmed(draft, draft, torch.ones(1, 3, dtype=torch.bool)).all()


def test_the_first_that_differs_is_corrected_and_the_rest_waits() -> None:
    draft, verified = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[1, 9, 3, 4]])
    is_open = torch.ones(1, 4, dtype=torch.bool)
    assert confirmed(draft, verified, is_open).tolist() == [[True, True, False, False]]
