"""From the hidden states of scored positions to what the rows' policies make of them.

Shapes: R rows, S of one policy, W window positions, M scored positions of all rows, D hidden size,
V vocabulary, N positions whose row chooses, C choices of a row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from raydiff.diffusion import choosing, commit, credit, guidance, sampling
from raydiff.diffusion.rules import RULES
from raydiff.engine.likelihoods import LikelihoodRows, RowLikelihoods
from raydiff.engine.plan import ChoiceRows, DenoisePlan, DenoiseResult
from raydiff.engine.positions import Positions
from raydiff.engine.scores import OwnScores, Scores, join, own_scores, remember_unboosted, score
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
        for begin in range(0, max(1, positions.count), self._part):  # all may be given
            part = slice(begin, begin + self._part)
            parts.append(self._score(positions, part, needs, plan.likelihoods))
        scores = join(parts)
        soft_RWD = None
        if scores.soft is not None:
            zeros_RWD = torch.zeros_like(hidden_RWD[: len(plan.open)])
            soft_RWD = positions.back(scores.soft.to(zeros_RWD.dtype), zeros_RWD)
        canvases = Canvases.of(plan, positions, scores)
        result = self._decide(canvases, plan, scores.choices)
        if plan.likelihoods is not None and scores.own is not None:
            told = _likelihoods(plan.likelihoods, positions.scored_RW, scores.own)
            result = replace(result, likelihoods=told)
        return result, soft_RWD

    def _score(
        self,
        positions: Positions,
        part: slice,
        needs: frozenset[str],
        likelihoods: LikelihoodRows | None,
    ) -> Scores:
        """The scores of a part of the scored positions."""
        logits_MV = self._denoiser.logits(positions.hidden_MD[part]).float()
        asking = positions.asking(part)
        own_NV = None if asking is None else self._own(logits_MV, asking)
        self._adjust(logits_MV, positions, part)
        scores = self._boosted(logits_MV, positions, part, needs)
        if own_NV is not None and asking is not None and likelihoods is not None:
            named = scores.candidates[asking], scores.best[asking]
            scores = replace(scores, own=own_scores(own_NV, *named, likelihoods.top))
        choosing = positions.choices(part)
        if choosing is None:
            return scores
        at, tokens_NC = choosing
        return replace(scores, choices=logits_MV[at].gather(1, tokens_NC))

    def _boosted(
        self, logits_MV: Tensor, positions: Positions, part: slice, needs: frozenset[str]
    ) -> Scores:
        """The scores of logits, to which credit is added where the policy gives any."""
        remembered = positions.remembered(part)
        if remembered is None:
            return score(logits_MV, part, positions, needs, self._softener)
        at, best_CT, confidence_CT = remembered
        boosted_CV = logits_MV[at]
        best_C, confidence_C = credit.add_boost(boosted_CV, best_CT, confidence_CT)
        logits_MV[at] = boosted_CV
        scores = score(logits_MV, part, positions, needs, self._softener)
        return remember_unboosted(scores, at, best_C, confidence_C)

    def _own(self, logits_MV: Tensor, at: Tensor) -> Tensor:
        """(n, V) log-probabilities of what the model may write at positions `at`, before the
        request has a say: no guidance, no temperature, no end token forbidden."""
        own_NV = logits_MV[at]
        if len(self._forbidden):
            sampling.forbid(own_NV, self._forbidden)
        return own_NV.log_softmax(dim=-1)

    def _adjust(self, logits_MV: Tensor, positions: Positions, part: slice) -> None:
        """Guide logits [m, V] of a part of the scored positions, and forbid tokens, in place."""
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

    def _decide(
        self, canvases: Canvases, plan: DenoisePlan, choices_NC: Tensor | None
    ) -> DenoiseResult:
        tokens_RW, open_RW = canvases.candidates.clone(), canvases.open.clone()
        final_R = torch.zeros(len(tokens_RW), dtype=torch.bool, device=tokens_RW.device)
        for group in plan.policies:
            change = RULES[group.policy].apply(view_of(canvases, group, plan, self._spec))
            if len(group.rows) == len(open_RW):
                tokens_RW, open_RW, final_R = change.tokens, change.open, change.final
                break
            rows = torch.from_numpy(group.rows).to(tokens_RW.device)
            tokens_RW[rows], open_RW[rows] = change.tokens, change.open
            final_R[rows] = change.final
        if self._spec.end_threshold is not None:
            run_RW = self._end_run(canvases, plan)
            tokens_RW = torch.where(run_RW, canvases.candidates, tokens_RW)
            open_RW = open_RW & ~run_RW
        chosen_R = None
        if plan.choices is not None:
            assert choices_NC is not None
            tokens_RW, open_RW, chosen_R = _choose(
                canvases, plan.choices, choices_NC, tokens_RW, open_RW
            )
        return _result(canvases, tokens_RW, open_RW, final_R, chosen_R, plan.remembers)

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


def _choose(
    canvases: Canvases, choices: ChoiceRows, logits_NC: Tensor, tokens_RW: Tensor, open_RW: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens and open positions with those of the rows that choose, and (R,) the probability
    of what these commit."""

    def device(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(tokens_RW.device)

    rows, places_SP = device(choices.rows), device(choices.places)
    logits_SPC = logits_NC.new_zeros((*places_SP.shape, logits_NC.shape[1]))
    logits_SPC[places_SP] = logits_NC
    options = choosing.Options(
        tokens=device(choices.tokens),
        groups=device(choices.groups),
        real=device(choices.real),
        places=places_SP,
        decides=device(choices.decides),
        temperature=device(choices.temperature),
        uniform=device(choices.uniform),
    )
    chosen = choosing.choose(logits_SPC.transpose(1, 2), options)
    was_open_SW = canvases.open[rows]
    tokens_SW, open_SW = canvases.tokens[rows], was_open_SW.clone()
    tokens_SW[was_open_SW] = chosen.tokens[places_SP]
    open_SW[was_open_SW] = ~chosen.commit[places_SP]
    chosen_R = torch.ones(len(open_RW), dtype=torch.float64, device=open_RW.device)
    chosen_R[rows] = chosen.probability
    return tokens_RW.index_copy(0, rows, tokens_SW), open_RW.index_copy(0, rows, open_SW), chosen_R


def _likelihoods(asked: LikelihoodRows, scored_RW: Tensor, own: OwnScores) -> RowLikelihoods:
    """The scores at their places in the windows of the rows that ask."""
    scored_SW = scored_RW[torch.from_numpy(asked.rows).to(scored_RW.device)]

    def back(values_N: Tensor) -> np.ndarray:
        placed = values_N.new_zeros((*scored_SW.shape, *values_N.shape[1:]))
        placed[scored_SW] = values_N
        array: np.ndarray = placed.cpu().numpy()
        return array

    return RowLikelihoods(
        rows=asked.rows,
        candidate=back(own.candidate),
        best=back(own.best),
        top_ids=back(own.top_ids),
        top=back(own.top),
    )


def _result(
    canvases: Canvases,
    tokens_RW: Tensor,
    open_RW: Tensor,
    final_R: Tensor,
    chosen_R: Tensor | None,
    remembers: bool,
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
        chosen=None if chosen_R is None else numpy(chosen_R),
    )
