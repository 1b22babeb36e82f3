"""Editing of committed tokens, and when it ends."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.diffusion.denoising import Network, Trace, decode
from tests.diffusion.views import MASK, VOCAB, apply, random_view

seeds = st.integers(0, 10**6)


@settings(deadline=None, max_examples=50)
@given(seed=seeds)
def test_a_committed_token_gives_way_to_a_surer_one_only(seed: int) -> None:
    view = random_view("edit", seed)
    change = apply("edit", view)
    edited = change.tokens != view.tokens
    edited &= ~view.open
    sure = view.confidence >= view.settings["edit_threshold"][:, None]
    assert torch.equal(edited, view.revisable & sure & (view.candidates != view.tokens))
    assert torch.equal(change.tokens[edited], view.candidates[edited])


@settings(deadline=None, max_examples=50)
@given(seed=seeds)
def test_at_least_one_open_position_commits(seed: int) -> None:
    """Even where every candidate is unsure: no stall."""
    view = random_view("edit", seed)
    unsure = replace(
        view,
        confidence=view.confidence * 1e-3,
        at_least=torch.ones(6, dtype=torch.long),
        settings={**view.settings, "threshold": torch.ones(6)},
    )
    committed = unsure.open & ~apply("edit", unsure).open
    assert committed.sum(1).tolist() == unsure.open.any(1).long().tolist()


class Restless:
    """Always surer of another token than the one that stands."""

    def __call__(self, tokens: Tensor, is_open: Tensor, time: float) -> Tensor:
        wanted = torch.where(is_open, 1, tokens % 3 + 1)
        return torch.nn.functional.one_hot(wanted, VOCAB) * 20.0


def run(predict: object, max_edits: int, edit_threshold: float = 0.5) -> Trace:
    start = torch.full((2, 5), MASK)
    start[:, 0] = 7
    assert callable(predict)
    return decode(
        "edit",
        predict,
        start,
        start == MASK,
        mask_id=MASK,
        vocab=VOCAB,
        settings={"threshold": 0.5, "edit_threshold": edit_threshold, "max_edits": max_edits},
    )


def test_editing_ends_after_as_many_steps_as_allowed() -> None:
    """The first forward fills the block; every further one edits."""
    for max_edits in (0, 1, 5):
        trace = run(Restless(), max_edits)
        assert trace.forwards.tolist() == [1 + max_edits] * 2
        assert trace.tokens.tolist() == [[7, *[max_edits % 3 + 1] * 4]] * 2


def test_editing_ends_as_soon_as_nothing_changes() -> None:
    trace = run(Restless(), 16, edit_threshold=1.01)
    assert trace.forwards.tolist() == [2, 2]


@settings(deadline=None, max_examples=20)
@given(seed=seeds)
def test_a_settled_block_is_what_the_model_predicts_of_it(seed: int) -> None:
    """Where editing ended by itself, no token that the model is surer against remains."""
    network = Network(5, VOCAB, MASK, seed)
    trace = run(network, 16)
    closed = torch.zeros(2, 5, dtype=torch.bool)
    probs = network(trace.tokens, closed, 0.0).softmax(-1)
    top = probs.max(-1)
    surer = (top.values >= 0.5) & (top.indices != trace.tokens)
    surer[:, 0] = False
    filled = torch.tensor([int(is_open.any(1).sum()) for is_open in trace.opens]).count_nonzero()
    ended_early = trace.forwards < filled + 16
    assert not surer[ended_early].any()
