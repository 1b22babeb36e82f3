"""In which order open positions are preferred.

Shapes: R rows, W positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = torch.finfo(torch.float32).tiny


def ranks(score_RW: Tensor, open_RW: Tensor) -> Tensor:
    """Place of each open position by descending score: 0 for the best.

    Closed positions come after all open ones. Ties go to the lower position. Scores must be
    above minus infinity. Returns (R, W) int64.
    """
    score_RW = score_RW.masked_fill(~open_RW, float("-inf"))
    order_RW = score_RW.argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(open_RW.shape[1], device=open_RW.device).expand_as(order_RW)
    return torch.empty_like(order_RW).scatter_(1, order_RW, places)


def perturb(score_RW: Tensor, temperature_R: Tensor, uniform_RW: Tensor) -> Tensor:
    """Scores whose order is a draw without replacement by softmax(score / temperature).

    The Gumbel-top-k identity (Kool et al. 2019) turns Dream's `alg_temp` (a multinomial
    draw without replacement) into a ranking, with one uniform number in [0, 1) a position.
    At temperature 0 the scores stay as they are.
    """
    temperature_R1 = temperature_R[:, None]
    gumbel_RW = -(-uniform_RW.clamp(min=_TINY).log()).log()
    noisy_RW = score_RW / temperature_R1.clamp(min=_TINY) + gumbel_RW
    return torch.where(temperature_R1 > 0, noisy_RW, score_RW)
