"""Faults of published decoders, none of which may come back.

Others are where their function is tested: SDAR's sum over the wrong axis and dInfer's last rank in
`test_commit`, LLaDA's end tokens in `test_sampling`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raydiff.diffusion import sampling
from raydiff.diffusion.schedule import quotas, timestep_quotas
from tests.diffusion.denoising import decode
from tests.diffusion.views import MASK, VOCAB, apply, random_view, rows_of

OWN: dict[str, dict[str, float | str]] = {
    "quota": {"score": "confidence", "score_temperature": 0},
    "threshold": {"threshold": 1},
    "factor": {"factor": 0.5},
    "entropy_bound": {"entropy_bound": 0, "stop_entropy": float("nan")},
    "hierarchical": {"threshold": 1, "low_threshold": 1},
    "credit": {"threshold": 1},
    "first_hitting": {},
    "edit": {"threshold": 1, "edit_threshold": 1, "max_edits": 1},
}


def sees_only_the_mask(tokens: Tensor, is_open: Tensor, time: float) -> Tensor:
    """A model that would predict the mask token everywhere, as the engine forbids it."""
    logits = torch.zeros(*tokens.shape, VOCAB)
    logits[..., MASK] = 50.0
    sampling.forbid(logits.view(-1, VOCAB), torch.tensor([MASK]))
    return logits


@pytest.mark.parametrize("policy", list(OWN))
def test_a_model_that_predicts_the_mask_cannot_stall(policy: str) -> None:
    """LLaDA's and dInfer's loops write the mask again, or commit nothing."""
    start = torch.full((2, 5), MASK)
    trace = decode(
        policy,
        sees_only_the_mask,
        start,
        start == MASK,
        mask_id=MASK,
        vocab=VOCAB,
        settings=OWN[policy],
    )
    assert not (trace.tokens == MASK).any()
    assert int(trace.forwards.max()) <= 6


def test_a_rows_share_is_its_own() -> None:
    """Dream's code takes the batch's mean number of masks."""
    view = random_view("quota", 3, rows=2)
    is_open = torch.zeros(2, 10, dtype=torch.bool)
    is_open[0, :4] = is_open[1, :] = True
    shares = [timestep_quotas(4, 4)[0], timestep_quotas(10, 4)[0]]
    view = replace(
        view,
        open=is_open,
        tokens=view.tokens.masked_fill(is_open, MASK),
        at_least=torch.tensor(shares),
    )
    committed = (is_open & ~apply("quota", view).open).sum(1)
    assert committed.tolist() == shares
    assert shares[0] != shares[1]


@pytest.mark.parametrize("spread", [quotas, timestep_quotas])
def test_one_step_a_block_needs_one_forward(spread: Callable[[int, int], tuple[int, ...]]) -> None:
    """Fast-dLLM's cached loops raise IndexError, or take two."""
    assert spread(5, 1) == (5,)
    start = torch.full((1, 5), MASK)
    trace = decode(
        "quota",
        sees_only_the_mask,
        start,
        start == MASK,
        mask_id=MASK,
        vocab=VOCAB,
        steps=1,
        settings=OWN["quota"],
    )
    assert trace.forwards.tolist() == [1]


@pytest.mark.parametrize("policy", ["entropy_bound", "ancestral", "flow"])
def test_rows_at_different_steps_keep_their_own_step_and_draws(policy: str) -> None:
    """transformers' DiffusionGemma shares one generator and one step counter."""
    view = random_view(policy, 5, "uniform")
    late = replace(view, next_time=torch.tensor([0.0, 0.1, 0.2, 0.1, 0.0, 0.4]), time=view.time)
    together = apply(policy, late)
    for row in range(6):
        alone = apply(policy, rows_of(late, torch.tensor([row])))
        assert torch.equal(alone.tokens[0], together.tokens[row])
        assert alone.final[0] == together.final[row]
    others = replace(late, uniforms=late.uniforms.roll(1, 0))
    others.uniforms[0] = late.uniforms[0]
    assert torch.equal(apply(policy, others).tokens[0], together.tokens[0])
