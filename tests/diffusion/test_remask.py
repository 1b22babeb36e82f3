"""ReMDM hides committed tokens again, within what keeps the process valid."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raydiff.decoding import CHOICES
from raydiff.diffusion.remask import Shares, by_confidence, cap, loop_share, rescale
from raydiff.diffusion.view import View
from tests.diffusion.denoising import Trace, decode
from tests.diffusion.views import MASK, apply, random_view

KINDS = CHOICES["remask"].of
seeds = st.integers(0, 10**6)
times = st.floats(2**-7, 1, width=32)
units = st.floats(0, 1, width=32)
ROWS, WIDTH = 4000, 10


def view_of(seed: int, kind: str, **own: float) -> View:
    view = random_view("remask", seed)
    values = {"remask": float(KINDS.index(kind)), **own}
    fixed = {name: torch.full((6,), value) for name, value in values.items()}
    return replace(view, settings={**view.settings, **fixed})


@pytest.mark.parametrize("kind", ["cap", "rescale"])
@settings(deadline=None, max_examples=40)
@given(seed=seeds)
def test_without_strength_it_is_ancestral_sampling_to_the_bit(kind: str, seed: int) -> None:
    view = view_of(seed, kind, eta=0.0)
    never = {"stop_entropy": torch.full((6,), float("nan"))}
    remasked, plain = apply("remask", view), apply("ancestral", replace(view, settings=never))
    assert torch.equal(remasked.tokens, plain.tokens)
    assert torch.equal(remasked.open, plain.open)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(seed=seeds)
def test_only_what_the_model_committed_is_hidden(kind: str, seed: int) -> None:
    view = view_of(seed, kind, eta=1.0, loop_from=1.0, loop_to=0.0, loop_alpha=0.5)
    change = apply("remask", view)
    hidden = change.open & ~view.open
    assert not (hidden & ~view.revisable).any()
    assert (change.tokens[hidden] == MASK).all()
    kept = view.revisable & ~hidden
    assert torch.equal(change.tokens[kept], view.tokens[kept])


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(seed=seeds)
def test_the_last_step_commits_all_and_hides_nothing(kind: str, seed: int) -> None:
    view = view_of(seed, kind, eta=1.0, loop_from=0.6, loop_to=0.2, loop_alpha=0.9)
    change = apply("remask", replace(view, next_time=torch.zeros(6)))
    assert change.final.all()
    assert not change.open.any()


@pytest.mark.parametrize("kind", ["cap", "rescale", "conf"])
@settings(deadline=None, max_examples=40)
@given(seed=seeds)
def test_the_loops_times_concern_the_loop_only(kind: str, seed: int) -> None:
    never = view_of(seed, kind, eta=0.7, loop_from=0.0, loop_to=0.0, loop_alpha=0.1)
    always = view_of(seed, kind, eta=0.7, loop_from=1.0, loop_to=0.0, loop_alpha=0.9)
    left, right = apply("remask", never), apply("remask", always)
    assert torch.equal(left.tokens, right.tokens)
    assert torch.equal(left.open, right.open)


@settings(deadline=None)
@given(t=times, share=units, eta=units)
def test_every_chance_of_hiding_leaves_valid_chances(t: float, share: float, eta: float) -> None:
    """Chances of hiding and of staying masked lie in [0, 1]."""
    shares = Shares(torch.tensor([t]), torch.tensor([t * share]))
    strength = torch.tensor([eta])
    for hide in (cap(shares, strength), rescale(shares, strength)):
        stay = (shares.after - hide * (1 - shares.before)) / shares.before
        assert 0 <= float(hide) <= 1
        assert -1e-5 <= float(stay) <= 1 + 1e-5
        assert hide <= eta + 1e-6


@settings(deadline=None)
@given(seed=seeds)
def test_by_confidence_the_least_sure_are_hidden_most(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.rand(3, 8, generator=generator)
    revisable = torch.rand(3, 8, generator=generator) < 0.7
    shares = Shares(torch.full((3,), 0.5), torch.full((3,), 0.4))
    hide = by_confidence(shares, confidence, revisable)
    for h, c, r in zip(hide, confidence, revisable, strict=True):
        assert (h[~r] == 0).all()
        torch.testing.assert_close(h[r], (-c[r]).softmax(0) * 0.8)


@settings(deadline=None)
@given(t=units, low=units, high=units, alpha=units)
def test_a_loop_holds_the_share_committed(t: float, low: float, high: float, alpha: float) -> None:
    """All masked at time 1, none at 0, 1 - alpha within the loop, never more later on."""
    low, high = min(low, high), max(low, high)
    span = torch.tensor([[high], [low], [alpha]])

    def share(time: float) -> Tensor:
        return loop_share(torch.tensor([time]), *span)

    assert share(0.0) == 0
    assert high == 1 or share(1.0) == 1
    assert -1e-6 <= float(share(t)) <= 1
    assert share(t) <= share(min(1.0, t + 0.1)) + 1e-5
    if low + 1e-6 < t < high - 1e-6:
        torch.testing.assert_close(share(t), torch.tensor([1 - alpha]))


def remasked(kind: str, steps: int, **own: float) -> Trace:
    """Tokens of a predictor that is always even over two tokens."""
    start = torch.full((ROWS, WIDTH), MASK)
    start[:, 0] = 2

    def even(tokens: Tensor, is_open: Tensor, time: float) -> Tensor:
        logits = torch.zeros(*tokens.shape, 3)
        logits[..., MASK] = float("-inf")
        return logits

    spans: dict[str, float | str] = {"loop_from": 0.6, "loop_to": 0.2, "loop_alpha": 0.7}
    return decode(
        "remask",
        even,
        start,
        start == MASK,
        mask_id=MASK,
        vocab=3,
        steps=steps,
        settings={**spans, "remask": kind, **own},
        temperature=1.0,
    )


@pytest.mark.parametrize("kind", ["cap", "rescale"])
def test_hiding_leaves_the_expected_share_of_masks(kind: str) -> None:
    """At time t a share t is masked, as without hiding; tokens are hidden all the same."""
    trace = remasked(kind, 10, eta=0.4)
    plain = remasked(kind, 10, eta=0.0)
    for step, is_open in enumerate(trace.opens):
        assert abs(float(is_open[:, 1:].float().mean()) - (1 - step / 10)) < 0.02
    assert _hidden(plain) == 0
    assert _hidden(trace) > ROWS
    assert (trace.tokens[:, 0] == 2).all()


def test_a_loop_hides_between_its_times_only() -> None:
    trace = remasked("loop", 10, eta=0.2)
    hidden = [
        bool((later & ~before).any())
        for before, later in zip(trace.opens, trace.opens[1:], strict=False)
    ]
    assert hidden == [False] * 4 + [True] * 4 + [False]
    # from time 0.6 to 0.2 the share stays
    for is_open in trace.opens[4:9]:
        assert abs(float(is_open[:, 1:].float().mean()) - 0.3) < 0.02


def test_stronger_hiding_hides_more() -> None:
    counts = [_hidden(remasked("rescale", 10, eta=eta)) for eta in (0.0, 0.2, 0.6, 1.0)]
    assert counts == sorted(set(counts))


def _hidden(trace: Trace) -> int:
    pairs = zip(trace.opens, trace.opens[1:], strict=False)
    return sum(int((later & ~before).sum()) for before, later in pairs)
