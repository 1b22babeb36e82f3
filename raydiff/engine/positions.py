"""The scored positions of a forward, with the parameters of the rows they belong to.

Shapes: R rows, G guided, S sampling, W window positions, M scored positions of all rows, D hidden
size, T past forwards, C choices of a row.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from raydiff.engine.plan import ChoiceRows, DenoisePlan, PolicyRows


class Positions:
    """Every position whose logits are wanted, row by row."""

    def __init__(self, plan: DenoisePlan, hidden_RWD: Tensor, shift: bool) -> None:
        """With `shift`, the hidden state of the position before predicts a position's token."""
        self._device = hidden_RWD.device
        scored = plan.open if plan.revisable is None else plan.open | plan.revisable
        self._scored_RW = torch.from_numpy(scored)
        rows = len(plan.open)
        self.scored_RW = self._scored_RW.to(self._device)
        self.hidden_MD = _pick(hidden_RWD[:rows], self.scored_RW, shift)
        self.end_forbidden_M = self.spread(plan.end_forbidden)
        self.temperature_M: Tensor | None = None
        if plan.sampling is not None:
            self._read_sampling(plan)
        self._guidance_M: Tensor | None = None
        if len(plan.guided):
            self._read_guidance(plan, hidden_RWD, shift)
        self._past: tuple[Tensor, Tensor, Tensor] | None = None
        for group in plan.policies:
            if group.past_best is not None:
                self._read_past(group)
        self._asks_M: Tensor | None = None
        if plan.likelihoods is not None:
            asks = np.zeros(rows, dtype=np.bool_)
            asks[plan.likelihoods.rows] = True
            self._asks_M = self.spread(asks)
        self._choices: tuple[Tensor, Tensor, Tensor] | None = None
        if plan.choices is not None:
            self._read_choices(plan, plan.choices)

    @property
    def count(self) -> int:
        """M"""
        return self.hidden_MD.shape[0]

    def spread(self, values: np.ndarray) -> Tensor:
        """(M,) from (R,) or (R, W)."""
        values_RW = torch.from_numpy(values if values.ndim == 2 else values[:, None])
        return values_RW.expand(self._scored_RW.shape)[self._scored_RW].to(self._device)

    def back(self, values_M: Tensor, base_RW: Tensor) -> Tensor:
        """(R, W): `base_RW` with the scored positions' values."""
        values_RW = base_RW.clone()
        values_RW[self.scored_RW] = values_M
        return values_RW

    def guided(self, part: slice) -> tuple[Tensor, Tensor, Tensor] | None:
        """Guided positions of a part: where (g,), their hidden states without the prompt (g, D)
        and their scales (g,)."""
        if self._guidance_M is None:
            return None
        at = (self._guidance_M[part] > 0).nonzero()[:, 0]
        return (at, self._free_MD[part][at], self._guidance_M[part][at]) if len(at) else None

    def remembered(self, part: slice) -> tuple[Tensor, Tensor, Tensor] | None:
        """Positions of a part whose policy reads the past: where (c,), their most likely tokens
        (c, T) and probabilities (c, T) in past forwards."""
        if self._past is None:
            return None
        asks_M, best_MT, confidence_MT = self._past
        at = asks_M[part].nonzero()[:, 0]
        return (at, best_MT[part][at], confidence_MT[part][at]) if len(at) else None

    def asking(self, part: slice) -> Tensor | None:
        """Where (c,) the positions of a part are whose row wants log-probabilities."""
        if self._asks_M is None:
            return None
        at = self._asks_M[part].nonzero()[:, 0]
        return at if len(at) else None

    def choices(self, part: slice) -> tuple[Tensor, Tensor] | None:
        """Positions of a part whose row chooses: where (c,), and the token that each of the row's
        choices has there (c, C)."""
        if self._choices is None:
            return None
        asks_M, number_M, tokens_NC = self._choices
        at = asks_M[part].nonzero()[:, 0]
        return at, tokens_NC[number_M[part][at]]

    def _read_choices(self, plan: DenoisePlan, choices: ChoiceRows) -> None:
        asks = np.zeros(len(plan.open), dtype=np.bool_)
        asks[choices.rows] = True
        asks_M = self.spread(asks)
        tokens = choices.tokens.transpose(0, 2, 1)[choices.places]
        self._choices = asks_M, asks_M.cumsum(0) - 1, torch.from_numpy(tokens).to(self._device)

    def _read_sampling(self, plan: DenoisePlan) -> None:
        s = plan.sampling
        assert s is not None
        self.temperature_M = self.spread(_all_rows(plan, s.rows, s.temperature))
        self.top_k_M = self.spread(_all_rows(plan, s.rows, s.top_k))
        self.top_p_M = self.spread(_all_rows(plan, s.rows, s.top_p))
        self.uniforms_M = self.spread(_all_rows(plan, s.rows, s.uniforms))

    def _read_guidance(self, plan: DenoisePlan, hidden_RWD: Tensor, shift: bool) -> None:
        rows = len(plan.open)
        free_RWD = hidden_RWD[:rows].clone()
        free_RWD[torch.from_numpy(plan.guided).to(self._device)] = hidden_RWD[rows:]
        self._free_MD = _pick(free_RWD, self.scored_RW, shift)
        self._guidance_M = self.spread(_all_rows(plan, plan.guided, plan.guidance))

    def _read_past(self, group: PolicyRows) -> None:
        assert group.past_best is not None
        assert group.past_confidence is not None
        rows, steps = len(self._scored_RW), group.past_best.shape[1]
        asks = np.zeros(rows, dtype=np.bool_)
        asks[group.rows] = True
        best = np.zeros((rows, steps, group.past_best.shape[2]), dtype=np.int64)
        sure = np.zeros(best.shape, dtype=np.float32)
        best[group.rows], sure[group.rows] = group.past_best, group.past_confidence
        pick = self._scored_RW
        self._past = (
            self.spread(asks),
            torch.from_numpy(best).transpose(1, 2)[pick].to(self._device),
            torch.from_numpy(sure).transpose(1, 2)[pick].to(self._device),
        )


def _pick(hidden_RWD: Tensor, scored_RW: Tensor, shift: bool) -> Tensor:
    if shift:
        return hidden_RWD[:, :-1][scored_RW[:, 1:]]
    return hidden_RWD[scored_RW]


def _all_rows(plan: DenoisePlan, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values of some rows as values of all, zero elsewhere."""
    full = np.zeros((len(plan.open), *values.shape[1:]), dtype=values.dtype)
    full[rows] = values
    return full
