"""Policies at their limits are each other, or plain decoding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.diffusion.denoising import Network, Trace, decode

WIDTH, VOCAB, MASK = 7, 9, 0
seeds = st.integers(0, 10**6)
QUOTA: dict[str, float | str] = {"score": "confidence", "score_temperature": 0}


def run(policy: str, seed: int, steps: int | None = None, **own: float | str) -> Trace:
    start = torch.full((3, WIDTH), MASK)
    start[1, 0], start[2, 4] = 3, 7
    is_open = start == MASK
    is_open[0, :1] = False
    return decode(
        policy,
        Network(WIDTH, VOCAB, MASK, seed),
        start.masked_fill(~is_open & (start == MASK), 2),
        is_open,
        mask_id=MASK,
        vocab=VOCAB,
        steps=steps,
        settings=own,
        seed=seed,
    )


def one_shot(seed: int) -> Tensor:
    """All positions by the most likely tokens of a single forward."""
    trace = run("quota", seed, 1, **QUOTA)
    logits = Network(WIDTH, VOCAB, MASK, seed)(trace.canvases[0], trace.opens[0], 1.0)
    return torch.where(trace.opens[0], logits.argmax(-1), trace.canvases[0])


@settings(deadline=None, max_examples=15)
@given(seed=seeds)
def test_a_threshold_above_one_is_a_step_a_position(seed: int) -> None:
    by_threshold = run("threshold", seed, threshold=1.01)
    by_quota = run("quota", seed, WIDTH - 1, **QUOTA)
    assert torch.equal(by_threshold.tokens, by_quota.tokens)
    assert by_threshold.forwards.tolist() == [WIDTH - 1] * 3


@settings(deadline=None, max_examples=15)
@given(seed=seeds)
def test_a_threshold_of_zero_is_one_step(seed: int) -> None:
    trace = run("threshold", seed, threshold=0)
    assert trace.forwards.tolist() == [1, 1, 1]
    assert torch.equal(trace.tokens, one_shot(seed))


@pytest.mark.parametrize(
    ("policy", "own"),
    [
        ("quota", QUOTA),
        ("ancestral", {"stop_entropy": float("nan")}),
        ("flow", {"stop_entropy": float("nan")}),
        ("remask", {"remask": "cap", "eta": 1, "loop_from": 1, "loop_to": 0, "loop_alpha": 1}),
    ],
)
@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_one_step_commits_all_in_one_forward(
    policy: str, own: dict[str, float | str], seed: int
) -> None:
    trace = run(policy, seed, 1, **own)
    assert trace.forwards.tolist() == [1, 1, 1]
    assert torch.equal(trace.tokens, one_shot(seed))


@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_boundless_rules_are_one_step(seed: int) -> None:
    expected = one_shot(seed)
    nan = float("nan")
    assert torch.equal(run("factor", seed, factor=100).tokens, expected)
    bound = run("entropy_bound", seed, entropy_bound=1e6, stop_entropy=nan)
    assert torch.equal(bound.tokens, expected)
    hierarchical = run("hierarchical", seed, threshold=0, low_threshold=0)
    assert torch.equal(hierarchical.tokens, expected)
    edited = run("edit", seed, threshold=0, edit_threshold=1, max_edits=0)
    assert torch.equal(edited.tokens, expected)


@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_the_tightest_rules_are_a_step_a_position(seed: int) -> None:
    expected = run("quota", seed, WIDTH - 1, **QUOTA).tokens
    assert torch.equal(run("factor", seed, factor=1e-9).tokens, expected)
    hierarchical = run("hierarchical", seed, threshold=1.01, low_threshold=1.01)
    assert torch.equal(hierarchical.tokens, expected)
    edited = run("edit", seed, threshold=1.01, edit_threshold=1.01, max_edits=0)
    assert torch.equal(edited.tokens, expected)


@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_an_entropy_bound_of_zero_is_a_step_a_position_by_entropy(seed: int) -> None:
    trace = run("entropy_bound", seed, entropy_bound=0, stop_entropy=float("nan"))
    ranked = run("quota", seed, WIDTH - 1, score="entropy", score_temperature=0)
    assert torch.equal(trace.tokens, ranked.tokens)


@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_an_edit_threshold_above_one_edits_nothing(seed: int) -> None:
    edited = run("edit", seed, threshold=0.5, edit_threshold=1.01, max_edits=16)
    plain = run("threshold", seed, threshold=0.5)
    assert torch.equal(edited.tokens, plain.tokens)
    # one forward more, to see that nothing changes
    assert torch.equal(edited.forwards, plain.forwards + 1)


@pytest.mark.parametrize("policy", ["quota", "threshold", "factor", "entropy_bound"])
@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_blocks_of_one_position_are_greedy_from_left_to_right(policy: str, seed: int) -> None:
    network = Network(WIDTH, VOCAB, MASK, seed)
    own: dict[str, dict[str, float | str]] = {
        "quota": QUOTA,
        "threshold": {"threshold": 0.7},
        "factor": {"factor": 1},
        "entropy_bound": {"entropy_bound": 0.1, "stop_entropy": float("nan")},
    }
    blocks, greedy = (torch.full((1, WIDTH), MASK) for _ in range(2))
    for place in range(WIDTH):
        is_open = torch.arange(WIDTH)[None] == place
        trace = decode(
            policy, network, blocks, is_open, mask_id=MASK, vocab=VOCAB, settings=own[policy]
        )
        blocks = trace.tokens
        greedy[:, place] = network(greedy, is_open, 1.0)[:, place].argmax(-1)
    assert torch.equal(blocks, greedy)
