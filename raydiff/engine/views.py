"""From a plan and its scores to the view of each policy.

Shapes: R rows, S of one policy, W window positions, K draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from raydiff.diffusion.view import View
from raydiff.engine.plan import DenoisePlan, PolicyRows
from raydiff.engine.positions import Positions
from raydiff.engine.scores import Scores
from raydiff.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Canvases:
    """All rows of a forward, (R, W) each; see `View`."""

    tokens: Tensor
    open: Tensor
    revisable: Tensor
    candidates: Tensor
    confidence: Tensor
    best: Tensor
    best_confidence: Tensor
    margin: Tensor
    entropy: Tensor

    @classmethod
    def of(cls, plan: DenoisePlan, positions: Positions, scores: Scores) -> Canvases:
        """Put the scores of scored positions back to their places."""
        device = positions.scored_RW.device
        tokens = torch.from_numpy(plan.tokens[: len(plan.open)]).to(device)
        zeros = torch.zeros(tokens.shape, device=device)
        drawn = scores.candidates is not scores.best
        best = positions.back(scores.best, tokens)
        sure = positions.back(scores.best_confidence, zeros)
        return cls(
            tokens=tokens,
            open=torch.from_numpy(plan.open).to(device),
            revisable=_to(plan.revisable, device) if plan.revisable is not None else zeros.bool(),
            candidates=positions.back(scores.candidates, tokens) if drawn else best,
            confidence=positions.back(scores.confidence, zeros) if drawn else sure,
            best=best,
            best_confidence=sure,
            margin=zeros if scores.margin is None else positions.back(scores.margin, zeros),
            entropy=zeros if scores.entropy is None else positions.back(scores.entropy, zeros),
        )


def view_of(canvases: Canvases, group: PolicyRows, plan: DenoisePlan, spec: ModelSpec) -> View:
    """The rows of one policy."""
    device = canvases.tokens.device
    whole = len(group.rows) == len(plan.open)
    rows = torch.from_numpy(group.rows).to(device)

    def mine(values_RW: Tensor) -> Tensor:
        return values_RW if whole else values_RW[rows]

    shape = (len(group.rows), plan.open.shape[1])
    none = np.zeros((shape[0], 0, shape[1]), dtype=np.float32)
    return View(
        tokens=mine(canvases.tokens),
        open=mine(canvases.open),
        revisable=mine(canvases.revisable),
        candidates=mine(canvases.candidates),
        confidence=mine(canvases.confidence),
        best=mine(canvases.best),
        best_confidence=mine(canvases.best_confidence),
        margin=mine(canvases.margin),
        entropy=mine(canvases.entropy),
        previous_best=_or_full(group.previous_best, shape, -1, device),
        commit_confidence=_or_full(group.commit_confidence, shape, 1.0, device),
        uniforms=_to(none if group.uniforms is None else group.uniforms, device),
        at_least=mine(_to(plan.at_least, device)),
        step=_to(group.step, device),
        full_steps=_to(group.full_steps, device),
        time=_to(group.time, device),
        next_time=_to(group.next_time, device),
        settings={name: _to(values, device) for name, values in group.settings.items()},
        noise=spec.noise,
        vocab_size=spec.vocab_size,
        mask_id=spec.mask_id,
    )


def _or_full(
    values: np.ndarray | None, shape: tuple[int, int], fill: float, device: torch.device
) -> Tensor:
    if values is None:
        return torch.full((1, 1), fill, device=device).expand(shape)
    return _to(values, device)


def _to(values: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(values).to(device)
