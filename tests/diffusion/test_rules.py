"""What holds for every policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.decoding import CHOICES, POLICY_SETTINGS
from raydiff.diffusion.rules import RULES
from raydiff.diffusion.view import Change
from raydiff.spec import Noise
from tests.diffusion.denoising import Network, Trace, decode
from tests.diffusion.views import CASES, MASK, VOCAB, apply, moved, padded, random_view, rows_of

seeds = st.integers(0, 10**6)
every_policy = pytest.mark.parametrize(("policy", "noise"), CASES)
COMMITTING = [policy for policy, rule in RULES.items() if not rule.traits.revises]
ANY: dict[str, dict[str, float | str]] = {
    "quota": {"score": "confidence", "score_temperature": 0},
    "threshold": {"threshold": 0.6},
    "factor": {"factor": 1.0},
    "entropy_bound": {"entropy_bound": 0.5, "stop_entropy": float("nan")},
    "hierarchical": {"threshold": 0.9, "low_threshold": 0.3},
    "credit": {"threshold": 0.6},
    "ancestral": {"stop_entropy": float("nan")},
    "first_hitting": {},
    "remask": {"remask": "rescale", "eta": 0.3, "loop_from": 1, "loop_to": 0, "loop_alpha": 1},
    "edit": {"threshold": 0.8, "edit_threshold": 0.6, "max_edits": 4},
    "flow": {"stop_entropy": float("nan")},
    "speculative": {},
}


def same(left: Change, right: Change) -> bool:
    return (
        torch.equal(left.tokens, right.tokens)
        and torch.equal(left.open, right.open)
        and torch.equal(left.final, right.final)
    )


def test_every_token_policy_has_a_rule() -> None:
    assert set(RULES) == set(POLICY_SETTINGS) - {"solver"}
    assert set(ANY) == set(RULES)


@every_policy
@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_a_row_alone_fares_as_beside_any_others(policy: str, noise: Noise, seed: int) -> None:
    """In any order, beside rows of other settings, steps, times and states."""
    view = random_view(policy, seed, noise)
    together = apply(policy, view)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    for at in (*torch.arange(6)[:, None], order, order[:3]):
        expected = Change(
            tokens=together.tokens[at], open=together.open[at], final=together.final[at]
        )
        assert same(apply(policy, rows_of(view, at)), expected)


@every_policy
@settings(deadline=None, max_examples=30)
@given(seed=seeds, more=st.integers(1, 30))
def test_a_window_padded_to_a_longer_rows_changes_nothing(
    policy: str, noise: Noise, seed: int, more: int
) -> None:
    view = random_view(policy, seed, noise)
    plain, wide = apply(policy, view), apply(policy, padded(view, more, seed))
    width = view.tokens.shape[1]
    assert torch.equal(wide.tokens[:, :width], plain.tokens)
    assert torch.equal(wide.open[:, :width], plain.open)
    assert torch.equal(wide.final, plain.final)
    assert not wide.open[:, width:].any()


@every_policy
@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_given_tokens_never_change(policy: str, noise: Noise, seed: int) -> None:
    view = random_view(policy, seed, noise)
    change = apply(policy, view)
    revisable = view.revisable & RULES[policy].traits.revises
    fixed = ~view.open & ~revisable
    assert torch.equal(change.tokens[fixed], view.tokens[fixed])
    assert not (change.open & fixed).any()


@every_policy
def test_a_rule_stays_on_the_device_and_reads_no_value_back(policy: str, noise: Noise) -> None:
    """Tensors without values stand for a device: to read one, or to mix in another, is an error."""
    view = moved(random_view(policy, 0, noise), "meta")
    change = apply(policy, view)
    assert {t.device.type for t in (change.tokens, change.open, change.final)} == {"meta"}
    assert change.tokens.shape == change.open.shape == view.tokens.shape
    assert change.final.shape == view.step.shape


@every_policy
@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_a_rule_leaves_its_view_alone(policy: str, noise: Noise, seed: int) -> None:
    view, again = random_view(policy, seed, noise), random_view(policy, seed, noise)
    assert same(apply(policy, view), apply(policy, view))
    assert torch.equal(view.tokens, again.tokens)
    assert torch.equal(view.open, again.open)
    assert torch.equal(view.entropy, again.entropy)


@settings(deadline=None, max_examples=40)
@given(seed=seeds)
def test_quota_ranks_by_the_rows_own_score(seed: int) -> None:
    """Rows of every score in one batch; the least entropy comes first."""
    view = random_view("quota", seed)
    kinds = torch.tensor([0, 1, 2, 3, 1, 2])
    own = {"score": kinds.float(), "score_temperature": torch.zeros(6)}
    change = apply("quota", replace(view, settings=own))
    scores = (view.confidence, view.margin, -view.entropy, view.uniforms[:, 0])
    assert CHOICES["score"].of == ("confidence", "margin", "entropy", "random")
    for row, kind in enumerate(kinds.tolist()):
        score = scores[kind][row].masked_fill(~view.open[row], -99)
        count = min(int(view.at_least[row]), int(view.open[row].sum()))
        committed = view.open[row] & ~change.open[row]
        assert set(committed.nonzero()[:, 0].tolist()) == set(score.topk(count).indices.tolist())


@settings(deadline=None, max_examples=40)
@given(seed=seeds)
def test_quota_without_chance_needs_no_draws(seed: int) -> None:
    view = random_view("quota", seed)
    own = {"score": torch.arange(6) % 3.0, "score_temperature": torch.zeros(6)}
    drawn = replace(view, settings=own)
    undrawn = replace(drawn, uniforms=torch.zeros(6, 0, 10))
    assert same(apply("quota", drawn), apply("quota", undrawn))


def test_a_score_temperature_ranks_by_chance_of_the_rows_that_have_one() -> None:
    """Random scores are uniform already, whatever temperature stands beside them."""
    rows = 20_000
    view = random_view("quota", 0, rows=rows, width=3)
    kinds = torch.where(torch.arange(rows) % 2 == 0, 0.0, 3.0)
    view = replace(
        view,
        open=torch.ones(rows, 3, dtype=torch.bool),
        confidence=torch.tensor([0.9, 0.5, 0.1]).expand(rows, 3),
        at_least=torch.ones(rows, dtype=torch.long),
        settings={"score": kinds, "score_temperature": torch.full((rows,), 0.4)},
    )
    first = (~apply("quota", view).open).float()
    warm = (torch.tensor([0.9, 0.5, 0.1]) / 0.4).softmax(0)
    torch.testing.assert_close(first[kinds == 0].mean(0), warm, atol=0.025, rtol=0)
    torch.testing.assert_close(
        first[kinds == 3].mean(0), torch.full((3,), 1 / 3), atol=0.025, rtol=0
    )
    by_chance = view.uniforms[:, 0].argmax(1)
    assert (first.argmax(1) == by_chance)[kinds == 3].all()


@pytest.mark.parametrize("policy", list(RULES))
@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_mask_tokens_stand_at_open_positions_only(policy: str, seed: int) -> None:
    """Under absorbing noise; none is ever written where a position commits."""
    change = apply(policy, random_view(policy, seed))
    assert torch.equal(change.tokens == MASK, change.open)


@pytest.mark.parametrize("policy", ["entropy_bound", "ancestral", "flow"])
@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_under_uniform_noise_nothing_is_committed_before_the_end(policy: str, seed: int) -> None:
    view = random_view(policy, seed, "uniform")
    change = apply(policy, view)
    assert torch.equal(change.open, view.open & ~change.final[:, None])
    assert change.final[view.next_time == 0].all()


@pytest.mark.parametrize("policy", ["entropy_bound", "ancestral", "flow"])
@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_an_early_stop_takes_the_most_likely_tokens(policy: str, noise: Noise, seed: int) -> None:
    """It needs them unchanged since the forward before, and a mean entropy below the bound."""
    view = random_view(policy, seed, noise)
    entropies = [e[o].mean() for e, o in zip(view.entropy, view.open, strict=True)]
    calm = torch.stack(entropies) < view.settings["stop_entropy"]
    stable = ((view.best == view.previous_best) | ~view.open).all(1)
    stop = calm & stable
    change = apply(policy, view)
    assert change.final[stop].all()
    expected = torch.where(view.open, view.best, view.tokens)
    assert torch.equal(change.tokens[stop], expected[stop])
    early = change.final & ~stop & (view.next_time > 0)
    # other rows end before the last step by committing all that was open
    assert not early.any() or noise == "absorbing"
    assert not change.open[early].any()


@pytest.mark.parametrize("policy", COMMITTING)
@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_each_open_position_commits_once_and_stays(policy: str, seed: int) -> None:
    trace = _run(policy, seed)
    for before, after in zip(trace.opens, [*trace.opens[1:], None], strict=True):
        later = torch.zeros_like(before) if after is None else after
        assert not (later & ~before).any()
    for canvas, is_open in zip(trace.canvases, trace.opens, strict=True):
        assert torch.equal(canvas[~is_open], trace.tokens[~is_open])


@pytest.mark.parametrize("policy", list(RULES))
@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_a_block_ends_without_masks_and_with_its_given_tokens(policy: str, seed: int) -> None:
    trace = _run(policy, seed)
    assert not (trace.tokens == MASK).any()
    assert torch.equal(trace.tokens[:, 2], torch.full((4,), 5))


@pytest.mark.parametrize("policy", [p for p in COMMITTING if p not in ("ancestral", "flow")])
@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_a_block_takes_at_most_a_forward_a_position(policy: str, seed: int) -> None:
    assert int(_run(policy, seed).forwards.max()) <= 7


def _run(policy: str, seed: int) -> Trace:
    """Four rows of eight positions, one of them given."""
    start = torch.full((4, 8), MASK)
    start[:, 2] = 5
    timed = policy in ("quota", "ancestral", "remask", "flow")
    return decode(
        policy,
        Network(8, VOCAB, MASK, seed),
        start,
        start == MASK,
        mask_id=MASK,
        vocab=VOCAB,
        steps=5 if timed else None,
        settings=ANY[policy],
        temperature=1.0,
        seed=seed,
    )
