"""Random views for property tests: every row has parameters and a state of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from raydiff.decoding import CHOICES, POLICY_SETTINGS
from raydiff.diffusion.rules import RULES
from raydiff.diffusion.view import Change, View
from raydiff.spec import Noise

MASK = 0
VOCAB = 9

CASES: list[tuple[str, Noise]] = [
    *((policy, "absorbing") for policy in RULES),
    ("entropy_bound", "uniform"),
    ("ancestral", "uniform"),
    ("flow", "uniform"),
]
"""Every policy with every noise that it undoes."""

_RANGES = {"factor": (0.1, 4.0), "entropy_bound": (0.0, 3.0), "max_edits": (0.0, 3.0)}


def settings_of(policy: str, rows: int, generator: torch.Generator) -> dict[str, Tensor]:
    """The policy's own settings, drawn anew for each row; `stop_entropy` is sometimes off."""
    drawn: dict[str, Tensor] = {}
    for name in sorted(POLICY_SETTINGS[policy]):
        uniform = torch.rand(rows, generator=generator)
        low, high = _RANGES.get(name, (0.0, 1.0))
        drawn[name] = low + (high - low) * uniform
        if CHOICES[name].of:
            drawn[name] = (uniform * len(CHOICES[name].of)).floor()
        elif CHOICES[name].kind is int:
            drawn[name] = drawn[name].round()
    if "stop_entropy" in drawn:
        off = torch.rand(rows, generator=generator) < 0.4
        drawn["stop_entropy"] = drawn["stop_entropy"].masked_fill(off, float("nan")) * 2
    return drawn


def random_view(
    policy: str, seed: int, noise: Noise = "absorbing", rows: int = 6, width: int = 10
) -> View:
    """Rows in the middle of a block: some positions open, some committed, some given."""
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    def tokens() -> Tensor:
        return torch.randint(1, VOCAB, (rows, width), generator=generator)

    kind = rand(rows, width)
    is_open = kind < 0.5
    revisable = (kind >= 0.5) & (kind < 0.8) & (rand(rows, 1) < 0.8)
    canvas = tokens()
    if noise == "absorbing":
        canvas = canvas.masked_fill(is_open, MASK)
    best, confidence = tokens(), rand(rows, width)
    greedy = rand(rows, 1) < 0.5
    candidates = torch.where(greedy, best, tokens())
    steps = torch.randint(1, 9, (rows,), generator=generator)
    step = (rand(rows) * steps).long()
    stable = rand(rows, 1) < 0.5
    return View(
        tokens=canvas,
        open=is_open,
        revisable=revisable,
        candidates=torch.where(is_open | revisable, candidates, canvas),
        confidence=confidence,
        best=best,
        best_confidence=torch.maximum(confidence, rand(rows, width)),
        margin=rand(rows, width),
        entropy=rand(rows, width) * 2,
        previous_best=torch.where(stable, best, tokens()),
        commit_confidence=rand(rows, width),
        uniforms=rand(rows, RULES[policy].traits.draws, width),
        at_least=torch.randint(1, 4, (rows,), generator=generator),
        step=step,
        full_steps=torch.randint(0, 3, (rows,), generator=generator),
        time=1 - step / steps,
        next_time=1 - (step + 1) / steps,
        settings=settings_of(policy, rows, generator),
        noise=noise,
        vocab_size=VOCAB,
        mask_id=MASK,
    )


def rows_of(view: View, at: Tensor) -> View:
    """The view of some of the rows, in the order given."""
    return _each(view, lambda values: values[at])


def moved(view: View, device: str) -> View:
    """The view on another device."""
    return _each(view, lambda values: values.to(device))


def _each(view: View, change: Callable[[Tensor], Tensor]) -> View:
    tensors: dict[str, Any] = {
        f.name: change(value)
        for f in fields(View)
        if isinstance(value := getattr(view, f.name), Tensor)
    }
    own = {name: change(values) for name, values in view.settings.items()}
    return replace(view, **tensors, settings=own)


def padded(view: View, more: int, seed: int) -> View:
    """The view in a window wider by closed positions, as beside a longer row."""
    generator = torch.Generator().manual_seed(seed)

    def wider(name: str) -> Tensor:
        values: Tensor = getattr(view, name)
        if name in ("open", "revisable"):
            extra = torch.zeros(len(values), more, dtype=torch.bool)
        elif values.dtype == torch.long:
            extra = torch.randint(1, VOCAB, (len(values), more), generator=generator)
        else:
            extra = torch.rand(*values.shape[:-1], more, generator=generator)
        return torch.cat((values, extra), dim=-1)

    width = view.tokens.shape[1]
    tensors = [f.name for f in fields(View) if isinstance(getattr(view, f.name), Tensor)]
    wide = [name for name in tensors if getattr(view, name).shape[-1] == width]
    wide = [name for name in wide if getattr(view, name).ndim > 1]
    changed: dict[str, Any] = {name: wider(name) for name in wide}
    return replace(view, **changed)


def apply(policy: str, view: View) -> Change:
    """The policy's rule, as the engine calls it."""
    return RULES[policy].apply(view)
