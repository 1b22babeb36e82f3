"""What the logits say of each scored position.

Shapes: M scored positions, m of a part, V vocabulary, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from raydiff.diffusion import sampling
from raydiff.engine.positions import Positions
from raydiff.models.denoiser import SelfConditioned


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Per scored position, (M,); what nobody asked for is `None`."""

    candidates: Tensor
    """The token drawn, or the most likely one."""
    confidence: Tensor
    """Its probability before temperature."""
    best: Tensor
    best_confidence: Tensor
    margin: Tensor | None
    entropy: Tensor | None
    soft: Tensor | None
    """Expected embeddings."""
    choices: Tensor | None = None
    """(c, C) logits of the tokens of each choice, of positions whose row chooses."""
    own: OwnScores | None = None
    """Of positions whose row wants log-probabilities."""


@dataclass(frozen=True, kw_only=True)
class OwnScores:
    """Log-probabilities under the model's own distribution, of n positions."""

    candidate: Tensor
    """(n,)"""
    best: Tensor
    """(n,)"""
    top_ids: Tensor
    """(n, K)"""
    top: Tensor
    """(n, K)"""


def own_scores(own_NV: Tensor, candidates_N: Tensor, best_N: Tensor, top: int) -> OwnScores:
    """Of log-probabilities `own_NV` those of the tokens named, and the `top` highest."""
    pair_N2 = own_NV.gather(1, torch.stack((candidates_N, best_N), dim=1))
    highest = own_NV.topk(min(top, own_NV.shape[1]), dim=-1)
    return OwnScores(
        candidate=pair_N2[:, 0], best=pair_N2[:, 1], top_ids=highest.indices, top=highest.values
    )


def score(
    logits_MV: Tensor,
    part: slice,
    positions: Positions,
    needs: frozenset[str],
    softener: SelfConditioned | None,
) -> Scores:
    """The scores of a part of the positions; `softener` makes expected embeddings."""
    best_M, best_confidence_M = sampling.greedy(logits_MV)
    candidates_M, confidence_M = best_M, best_confidence_M
    temperature_M = positions.temperature_M
    draws = temperature_M is not None
    tempered_MV = probs_MV = logits_MV
    if draws or "entropy" in needs or softener is not None:
        tempered_MV = sampling.tempered(
            logits_MV, None if temperature_M is None else temperature_M[part]
        )
    if draws or "entropy" in needs:
        probs_MV = tempered_MV.softmax(dim=-1)
    if draws:
        candidates_M = _drawn(probs_MV, part, positions, best_M)
        confidence_M = sampling.confidence(logits_MV, candidates_M, best_M, best_confidence_M)
    return Scores(
        candidates=candidates_M,
        confidence=confidence_M,
        best=best_M,
        best_confidence=best_confidence_M,
        margin=sampling.margin(logits_MV) if "margin" in needs else None,
        entropy=sampling.entropy(probs_MV) if "entropy" in needs else None,
        soft=None if softener is None else softener.soft(tempered_MV),
    )


def remember_unboosted(scores: Scores, at: Tensor, best_C: Tensor, confidence_C: Tensor) -> Scores:
    """The scores with other most likely tokens at positions `at` (C,): those without credit, which
    the next forward's credit builds on.
    """
    best_M, sure_M = scores.best.clone(), scores.best_confidence.clone()
    best_M[at], sure_M[at] = best_C, confidence_C
    return replace(scores, best=best_M, best_confidence=sure_M)


def join(parts: Sequence[Scores]) -> Scores:
    """The scores of all parts."""
    if len(parts) == 1:
        return parts[0]
    return Scores(
        candidates=torch.cat([p.candidates for p in parts]),
        confidence=torch.cat([p.confidence for p in parts]),
        best=torch.cat([p.best for p in parts]),
        best_confidence=torch.cat([p.best_confidence for p in parts]),
        margin=_cat([p.margin for p in parts]),
        entropy=_cat([p.entropy for p in parts]),
        soft=_cat([p.soft for p in parts]),
        choices=_cat([p.choices for p in parts]),
        own=_joined([p.own for p in parts]),
    )


def _joined(parts: Sequence[OwnScores | None]) -> OwnScores | None:
    given = [part for part in parts if part is not None]
    if not given:
        return None
    return OwnScores(
        candidate=torch.cat([p.candidate for p in given]),
        best=torch.cat([p.best for p in given]),
        top_ids=torch.cat([p.top_ids for p in given]),
        top=torch.cat([p.top for p in given]),
    )


def _cat(parts: Sequence[Tensor | None]) -> Tensor | None:
    given = [part for part in parts if part is not None]
    return torch.cat(given) if given else None


def _drawn(probs_MV: Tensor, part: slice, positions: Positions, best_M: Tensor) -> Tensor:
    """The token drawn where a row samples, elsewhere the most likely one."""
    assert positions.temperature_M is not None
    at = (positions.temperature_M[part] > 0).nonzero()[:, 0]
    tokens_M = best_M.clone()
    if len(at):
        tokens_M[at] = sampling.sample(
            probs_MV if len(at) == len(tokens_M) else probs_MV[at],
            positions.top_k_M[part][at],
            positions.top_p_M[part][at],
            positions.uniforms_M[part][at],
        )
    return tokens_M
