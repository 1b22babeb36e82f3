"""Trace credit: tokens that a position kept predicting gain logits (CreditDecoding, dInfer).

Shapes: N positions, V vocabulary entries, T past forwards, C credited forwards (T and this one).

Only tokens that once were a position's most likely have credit, so the history of those tokens
holds all of it. Source: CreditDecoding (arXiv 2510.06133), with the constants of dInfer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from raydiff.diffusion.sampling import greedy

DECAY = 0.8
POWER = 0.2
WEIGHT = 0.7


def add_boost(
    logits_NV: Tensor, past_best_NT: Tensor, past_confidence_NT: Tensor
) -> tuple[Tensor, Tensor]:
    """Add 0.7 log(1 + credit) to the logits, in place.

    A forward gives its most likely token credit: the token's probability, without any boost, to
    the power 0.2; credit fades by 0.8 a forward. The past is given with the latest forward
    last, and probability 0 where there was none; this forward counts too.

    Returns what the next forward needs to know of this one: (best_N int64, confidence_N float32)
    without the boost.
    """
    best_N, confidence_N = greedy(logits_NV)
    tokens_NC = torch.cat((past_best_NT, best_N[:, None]), dim=1)
    confidence_NC = torch.cat((past_confidence_NT, confidence_N[:, None]), dim=1)
    gain_NC = (WEIGHT * _credit(tokens_NC, confidence_NC).log1p()).to(logits_NV.dtype)
    # a token that comes several times in the history is written several times with one value
    logits_NV.scatter_(1, tokens_NC, logits_NV.gather(1, tokens_NC) + gain_NC)
    return best_N, confidence_N


def _credit(tokens_NC: Tensor, confidence_NC: Tensor) -> Tensor:
    """(N, C) float32: credit of the token of each forward, given by all that predicted it.

    Forward after forward, since a sum over all would round by how many a batch's longest history
    has; and by logarithms, since a power rounds by a position's place in the batch.
    """
    given_NC = (POWER * confidence_NC.log()).exp()
    credit_NC = torch.zeros_like(given_NC)
    for token_N, given_N in zip(tokens_NC.unbind(1), given_NC.unbind(1), strict=True):
        same_NC = tokens_NC == token_N[:, None]
        credit_NC = credit_NC * DECAY + same_NC * given_N[:, None]
    return credit_NC
