"""Denoising towards one of given texts ("choices"), so that nothing else can come out.

A forward predicts each open position by itself. Of texts drawn that way, position by position, keep
those that are a choice: the probability of choice c is then the softmax over the choices of the sum
of its tokens' logits, since what normalises a position is the same for all of them. From these
follow each position's probabilities, given that the text is a choice (its marginals).

A step commits one position, the surest by its marginals, which leaves the choices that have this
token there; positions at which all of those agree are then known without a forward. So what one
step commits always belongs to one choice, and the rest is predicted again in its light. The product
over the steps of the probability of what they committed is a probability over the choices: each is
reached by one chain of commits.

Shapes: S rows, C choices, P open positions, G distinct tokens at a position.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from raydiff.diffusion.sampling import invert


@dataclass(frozen=True, kw_only=True)
class Options:
    """The choices that rows still have, which differ at each open position. All rows have at least
    two; padding is arbitrary."""

    tokens: Tensor
    """(S, C, P) int64: the choices' tokens at the open positions."""
    groups: Tensor
    """(S, C, P) int64: number of the token among the distinct ones at its position."""
    real: Tensor
    """(S, C) bool: False for padding."""
    places: Tensor
    """(S, P) bool: False for padding."""
    decides: Tensor
    """(S,) bool: take a whole choice now."""
    temperature: Tensor
    """(S,) float32: 0 takes the most likely, above 0 draws."""
    uniform: Tensor
    """(S,) float32 in [0, 1): one draw of the row's own generator."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What a step commits."""

    tokens: Tensor
    """(S, P) int64: those of one choice."""
    commit: Tensor
    """(S, P) bool: where they are committed; at least one position a row."""
    probability: Tensor
    """(S,) float64: of what is committed, before temperature, among the row's choices."""


def log_probabilities(logits_SCP: Tensor, options: Options) -> Tensor:
    """(S, C) float64: log-probability of each choice; minus infinity for padding.

    `logits_SCP` are those of the choices' own tokens.
    """
    logits_SCP = logits_SCP.double().masked_fill(~options.places[:, None], 0.0)
    score_SC = logits_SCP.sum(dim=2).masked_fill(~options.real, float("-inf"))
    return score_SC.log_softmax(dim=1)


def marginals(log_probs_SC: Tensor, options: Options) -> Tensor:
    """(S, P, G) float64: probability of each distinct token at each position."""
    groups_SPC = options.groups.transpose(1, 2)
    probs_SPC = log_probs_SC.exp()[:, None].expand_as(groups_SPC)
    most = int(options.groups.shape[1])
    empty = torch.zeros(*groups_SPC.shape[:2], most, dtype=torch.float64, device=groups_SPC.device)
    return empty.scatter_add_(2, groups_SPC, probs_SPC)


def choose(logits_SCP: Tensor, options: Options) -> Chosen:
    """Commit the surest position of each row, or all of them where the row decides.

    At temperature 0 the token is the most likely one by its position's marginals, and a whole
    choice the most likely one. Above it a choice is drawn, and its token taken: that is a draw from
    the marginals. Ties go to the lower position, and to the token or choice that comes first.
    """
    log_probs_SC = log_probabilities(logits_SCP, options)
    marginal_SPG = marginals(log_probs_SC, options)
    sure_SP = marginal_SPG.amax(dim=2).masked_fill(~options.places, -1.0)
    # to fp32: sums of the same numbers in another order are ties too
    where_S = _first_greatest(sure_SP.float())
    marginal_SG = _at(marginal_SPG, where_S, 1)
    groups_SC = _at(options.groups, where_S, 2)
    likely_S = _first_greatest(marginal_SG.float())
    pick_S = _first_greatest((groups_SC == likely_S[:, None]) & options.real)
    pick_S = torch.where(options.decides, _first_greatest(log_probs_SC), pick_S)
    pick_S = torch.where(options.temperature > 0, _drawn(log_probs_SC, options), pick_S)
    one_SP = torch.nn.functional.one_hot(where_S, sure_SP.shape[1]).bool()
    whole_S = log_probs_SC.gather(1, pick_S[:, None])[:, 0].exp()
    part_S = marginal_SG.gather(1, groups_SC.gather(1, pick_S[:, None]))[:, 0]
    return Chosen(
        tokens=_at(options.tokens, pick_S, 1),
        commit=torch.where(options.decides[:, None], options.places, one_SP),
        probability=torch.where(options.decides, whole_S, part_S).clamp(max=1.0),
    )


def _drawn(log_probs_SC: Tensor, options: Options) -> Tensor:
    """(S,) a choice drawn at the row's temperature; the most likely one at 0."""
    temperature_S = options.temperature.double()
    divisor_S1 = torch.where(temperature_S > 0, temperature_S, 1.0)[:, None]
    weights_SC = (log_probs_SC / divisor_S1).softmax(dim=1)
    return invert(weights_SC, options.uniform, _first_greatest(log_probs_SC))


def _first_greatest(values_SN: Tensor) -> Tensor:
    """(S,) place of the greatest value, the first of equals."""
    places_N = torch.arange(values_SN.shape[1], device=values_SN.device)
    greatest_SN = values_SN == values_SN.amax(dim=1, keepdim=True)
    return places_N.expand_as(values_SN).masked_fill(~greatest_SN, values_SN.shape[1]).amin(dim=1)


def _at(values: Tensor, index_S: Tensor, dim: int) -> Tensor:
    """Of each row, what stands at its own index of `dim`."""
    shape = list(values.shape)
    shape[dim] = 1
    spread = index_S.view(-1, *([1] * (values.dim() - 1))).expand(shape)
    return values.gather(dim, spread).squeeze(dim)
