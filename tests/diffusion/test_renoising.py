"""Uniform noise: the entropy bound's accept-and-renoise steps and the D3PM reverse process."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raydiff.diffusion.view import View
from tests.diffusion.denoising import Trace, decode
from tests.diffusion.views import VOCAB, apply, random_view

seeds = st.integers(0, 10**6)
WIDTH = 6


def published(view: View, row: int) -> list[int]:
    """DiffusionGemma's next canvas of a row, position by position."""
    is_open, entropy = view.open[row].tolist(), view.entropy[row].tolist()
    bound = float(view.settings["entropy_bound"][row])
    canvas = view.tokens[row].tolist()
    spent = 0.0
    for place in sorted((i for i in range(len(canvas)) if is_open[i]), key=lambda i: entropy[i]):
        if spent <= bound:
            canvas[place] = int(view.candidates[row, place])
        else:
            canvas[place] = int(float(view.uniforms[row, 0, place]) * view.vocab_size)
        spent += entropy[place]
    return canvas


@settings(deadline=None, max_examples=60)
@given(seed=seeds)
def test_certain_positions_take_candidates_and_all_others_random_tokens(seed: int) -> None:
    """Whatever stood there, and however many positions a step would commit at least."""
    view = random_view("entropy_bound", seed, "uniform")
    never = {**view.settings, "stop_entropy": torch.full((6,), float("nan"))}
    view = replace(view, settings=never, next_time=view.next_time.clamp(min=0.01))
    change = apply("entropy_bound", view)
    assert change.tokens.tolist() == [published(view, row) for row in range(6)]
    assert not change.final.any()


@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_the_last_canvas_is_the_most_likely_one(seed: int) -> None:
    """Not the candidates, nor the canvas with its random tokens."""
    view = replace(random_view("entropy_bound", seed, "uniform"), next_time=torch.zeros(6))
    change = apply("entropy_bound", view)
    assert torch.equal(change.tokens, torch.where(view.open, view.best, view.tokens))
    assert change.final.all()


class Sure:
    """Predicts one text whatever the canvas; from some forward on it is sure."""

    def __init__(self, sure_from: int) -> None:
        self.text = torch.arange(1, WIDTH + 1)
        self._sure_from, self._forwards = sure_from, 0

    def __call__(self, tokens: Tensor, is_open: Tensor, time: float) -> Tensor:
        sharp = 50.0 if self._forwards >= self._sure_from else 1.0
        self._forwards += 1
        one_hot = torch.nn.functional.one_hot(self.text, VOCAB) * sharp
        return one_hot.expand(len(tokens), -1, -1)


def run(predict: Sure, steps: int = 10, stop_entropy: float = 0.005) -> Trace:
    start = torch.randint(VOCAB, (3, WIDTH), generator=torch.Generator().manual_seed(0))
    start[:, 2] = 7
    is_open = torch.ones(3, WIDTH, dtype=torch.bool)
    is_open[:, 2] = False
    return decode(
        "entropy_bound",
        predict,
        start,
        is_open,
        mask_id=0,
        vocab=VOCAB,
        steps=steps,
        settings={"entropy_bound": 0.1, "stop_entropy": stop_entropy},
        noise="uniform",
        temperature=1.0,
    )


def test_a_sure_model_stops_at_its_second_forward_never_at_its_first() -> None:
    assert run(Sure(0)).forwards.tolist() == [2, 2, 2]


def test_stable_tokens_wait_for_a_low_entropy() -> None:
    assert run(Sure(4)).forwards.tolist() == [5, 5, 5]


def test_without_a_bound_all_steps_are_taken() -> None:
    assert run(Sure(0), stop_entropy=float("nan")).forwards.tolist() == [10, 10, 10]


def test_a_given_token_stays_through_all_renoising() -> None:
    trace = run(Sure(99))
    assert all((canvas[:, 2] == 7).all() for canvas in trace.canvases)
    assert trace.tokens.tolist() == [[1, 2, 7, 4, 5, 6]] * 3


def test_uncertain_positions_are_drawn_anew_at_every_step() -> None:
    trace = run(Sure(99))
    first, second, third = trace.canvases[1:4]
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_a_reverse_step_keeps_takes_or_randomises(seed: int) -> None:
    """Every token of the next canvas is the old one, the clean one, or the random one."""
    view = random_view("ancestral", seed, "uniform")
    never = {**view.settings, "stop_entropy": torch.full((6,), float("nan"))}
    change = apply("ancestral", replace(view, settings=never))
    noise = (view.uniforms[:, 0].double() * VOCAB).long()
    possible = torch.stack((view.tokens, view.candidates, noise))
    assert (possible == change.tokens).any(0)[view.open].all()
    last = view.next_time == 0
    clean = torch.where(view.open, view.candidates, view.tokens)
    assert torch.equal(change.tokens[last], clean[last])
