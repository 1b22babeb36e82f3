"""From the hidden states of scored positions to what the rows' policies make of them.

Shapes: R rows, S of one policy, W window positions, M scored positions of all rows, D hidden size,
V vocabulary.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from raydiff.diffusion import commit, credit, guidance, sampling
from raydiff.diffusion.rules import RULES
from raydiff.engine.plan import DenoisePlan, DenoiseResult
from raydiff.engine.positions import Positions
from raydiff.engine.scores import Scores, join, remember_unboosted, score
from raydiff.engine.views import Canvases, view_of
from raydiff.models.denoiser import Denoiser, SelfConditioned

MAX_LOGITS = 2**26
"""Logits computed at once; more positions are taken in parts."""


class Sampler:
    """Applies a spec's token rules, a plan's per-row parameters, and the rows' policies."""

    def __init__(self, denoiser: Denoiser) -> None:
        spec, device = denoiser.spec, denoiser.device
        self._denoiser = denoiser
        self._spec = spec
        softener = cast(SelfConditioned, denoiser) if spec.self_conditioning else None
        self._softener = softener
        forbidden = () if spec.noise == "uniform" else (spec.mask_id, *spec.forbidden_ids)
        self._forbidden = torch.tensor(forbidden, dtype=torch.long, device=device)
        self._end_ids = torch.tensor(spec.end_ids, dtype=torch.long, device=device)
        self._part = max(1, MAX_LOGITS // spec.vocab_size)

    def __call__(
        self, hidden_RWD: Tensor, plan: DenoisePlan
    ) -> tuple[DenoiseResult, Tensor | None]:
        """What becomes of each position, and the expected embeddings [R, W, D] for models with
        self-conditioning.
        """
        positions = Positions(plan, hidden_RWD, self._spec.shift)
        needs = frozenset[str]().union(*(group.needs for group in plan.policies))
        parts = []
        for begin in range(0, positions.count, self._part):
            part = slice(begin, begin + self._part)
            parts.append(self._score(positions, part, needs))
        scores = join(parts)
        soft_RWD = None
        if scores.soft is not None:
            zeros_RWD = torch.zeros_like(hidden_RWD[: len(plan.open)])
            soft_RWD = positions.back(scores.soft.to(zeros_RWD.dtype), zeros_RWD)
        return self._decide(Canvases.of(plan, positions, scores), plan), soft_RWD

    def _score(self, positions: Positions, part: slice, needs: frozenset[str]) -> Scores:
        """The scores of a part of the scored positions."""
        logits_MV = self._logits(positions, part)
        remembered = positions.remembered(part)
        if remembered is None:
            return score(logits_MV, part, positions, needs, self._softener)
        at, best_CT, confidence_CT = remembered
        boosted_CV = logits_MV[at]
        best_C, confidence_C = credit.add_boost(boosted_CV, best_CT, confidence_CT)
        logits_MV[at] = boosted_CV
        scores = score(logits_MV, part, positions, needs, self._softener)
        return remember_unboosted(scores, at, best_C, confidence_C)

    def _logits(self, positions: Positions, part: slice) -> Tensor:
        """Logits [m, V] of a part of the scored positions: fp32, guided, adjusted."""
        logits_MV = self._denoiser.logits(positions.hidden_MD[part]).float()
        guided = positions.guided(part)
        if guided is not None:
            at, free_GD, scale_G = guided
            free_GV = self._denoiser.logits(free_GD).float()
            logits_MV[at] = guidance.combine(logits_MV[at], free_GV, scale_G)
        if len(self._forbidden):
            sampling.forbid(logits_MV, self._forbidden)
        sampling.adjust_end(
            logits_MV, self._end_ids, self._spec.end_bias, positions.end_forbidden_M[part]
        )
        return logits_MV

    def _decide(self, canvases: Canvases, plan: DenoisePlan) -> DenoiseResult:
        tokens_RW, open_RW = canvases.candidates.clone(), canvases.open.clone()
        final_R = torch.zeros(len(tokens_RW), dtype=torch.bool, device=tokens_RW.device)
        for group in plan.policies:
            change = RULES[group.policy].apply(view_of(canvases, group, plan, self._spec))
            if len(plan.policies) == 1:
                tokens_RW, open_RW, final_R = change.tokens, change.open, change.final
                break
            rows = torch.from_numpy(group.rows).to(tokens_RW.device)
            tokens_RW[rows], open_RW[rows] = change.tokens, change.open
            final_R[rows] = change.final
        if self._spec.end_threshold is not None:
            run_RW = self._end_run(canvases, plan)
            tokens_RW = torch.where(run_RW, canvases.candidates, tokens_RW)
            open_RW = open_RW & ~run_RW
        return _result(canvases, tokens_RW, open_RW, final_R, plan.remembers)

    def _end_run(self, canvases: Canvases, plan: DenoisePlan) -> Tensor:
        """Open positions that close with a sure run of end tokens."""
        assert self._spec.end_threshold is not None
        is_end_RW = torch.isin(canvases.candidates, self._end_ids)
        run_RW = commit.end_run(
            is_end_RW, canvases.confidence, canvases.open, self._spec.end_threshold
        )
        if plan.revisable is None:
            return run_RW
        return run_RW & ~torch.from_numpy(plan.revises).to(run_RW.device)[:, None]


def _result(
    canvases: Canvases, tokens_RW: Tensor, open_RW: Tensor, final_R: Tensor, remembers: bool
) -> DenoiseResult:
    def numpy(values: Tensor) -> np.ndarray:
        array: np.ndarray = values.cpu().numpy()
        return array

    return DenoiseResult(
        candidates=numpy(canvases.candidates),
        tokens=numpy(tokens_RW),
        open=numpy(open_RW),
        final=numpy(final_R),
        best=numpy(canvases.best) if remembers else None,
        best_confidence=numpy(canvases.best_confidence) if remembers else None,
        confidence=numpy(canvases.confidence) if remembers else None,
    )
