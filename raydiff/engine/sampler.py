"""From the hidden states of open positions to tokens and commits.

Shapes: R rows, W live block positions, M open positions of all rows, D hidden size, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from raydiff.diffusion import commit, sampling
from raydiff.engine.plan import DenoisePlan, DenoiseResult, Sampling
from raydiff.models.denoiser import Denoiser

MAX_LOGITS = 2**26
"""Logits computed at once; more positions are taken in parts."""


class Sampler:
    """Applies a spec's token rules and a plan's per-row parameters."""

    def __init__(self, denoiser: Denoiser) -> None:
        spec, device = denoiser.spec, denoiser.device
        self._denoiser = denoiser
        self._end_bias = spec.end_bias
        self._end_threshold = spec.end_threshold
        self._forbidden = torch.tensor([spec.mask_id, *spec.forbidden_ids], device=device)
        self._end_ids = torch.tensor(spec.end_ids, device=device)
        self._part = max(1, MAX_LOGITS // spec.vocab_size)

    def __call__(self, hidden_RWD: Tensor, plan: DenoisePlan) -> DenoiseResult:
        """Choose a candidate for each open position of the plan, and which to commit."""
        device = hidden_RWD.device
        open_RW = torch.from_numpy(plan.open).to(device)
        tokens_RW = torch.from_numpy(plan.tokens).to(device)
        confidence_RW = torch.zeros(open_RW.shape, device=device)
        hidden_MD = hidden_RWD[open_RW]
        tokens_M, confidence_M = self._candidates(hidden_MD, plan, device)
        tokens_RW[open_RW] = tokens_M
        confidence_RW[open_RW] = confidence_M
        commit_RW = commit.commit_mask(
            confidence_RW,
            open_RW,
            torch.from_numpy(plan.at_least).to(device),
            torch.from_numpy(plan.threshold).to(device),
        )
        if self._end_threshold is not None:
            is_end_RW = torch.isin(tokens_RW, self._end_ids)
            commit_RW |= commit.end_run(is_end_RW, confidence_RW, open_RW, self._end_threshold)
        return DenoiseResult(tokens=tokens_RW.cpu().numpy(), commit=commit_RW.cpu().numpy())

    def _candidates(
        self, hidden_MD: Tensor, plan: DenoisePlan, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        ends_M = torch.from_numpy(plan.end_forbidden[plan.open]).to(device)
        draws = _Draws(plan.sampling, plan, device) if plan.sampling else None
        tokens, confidences = [], []
        for begin in range(0, hidden_MD.shape[0], self._part):
            part = slice(begin, begin + self._part)
            logits = self._logits(hidden_MD[part], ends_M[part])
            tokens_M, confidence_M = sampling.greedy(logits)
            if draws is not None:
                draws.apply(logits, part, tokens_M, confidence_M)
            tokens.append(tokens_M)
            confidences.append(confidence_M)
        return torch.cat(tokens), torch.cat(confidences)

    def _logits(self, hidden_MD: Tensor, ends_M: Tensor) -> Tensor:
        logits_MV = self._denoiser.logits(hidden_MD).float()
        sampling.forbid(logits_MV, self._forbidden)
        sampling.adjust_end(logits_MV, self._end_ids, self._end_bias, ends_M)
        return logits_MV


class _Draws:
    """Sampling parameters spread from rows to open positions; temperature 0 marks greedy ones."""

    def __init__(self, s: Sampling, plan: DenoisePlan, device: torch.device) -> None:
        shape = plan.open.shape
        rows = torch.from_numpy(s.rows)
        open_RW = torch.from_numpy(plan.open)

        def spread(values_S: Tensor) -> Tensor:
            values_RW = torch.zeros(shape, dtype=values_S.dtype)
            values_RW[rows] = values_S if values_S.ndim == 2 else values_S[:, None]
            return values_RW[open_RW].to(device)

        self._temperature = spread(torch.from_numpy(s.temperature))
        self._top_k = spread(torch.from_numpy(s.top_k))
        self._top_p = spread(torch.from_numpy(s.top_p))
        self._uniforms = spread(torch.from_numpy(s.uniforms))

    def apply(self, logits: Tensor, part: slice, tokens_M: Tensor, confidence_M: Tensor) -> None:
        """Replace the greedy choice where a row samples, in place."""
        at = (self._temperature[part] > 0).nonzero()[:, 0]
        if len(at) == 0:
            return
        tokens_M[at], confidence_M[at] = sampling.sample(
            logits[at],
            self._temperature[part][at],
            self._top_k[part][at],
            self._top_p[part][at],
            self._uniforms[part][at],
        )
