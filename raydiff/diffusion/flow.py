"""Discrete flow matching: Euler steps of the jump process (Gat et al. 2024).

Shapes: R rows, W positions. The path mixes source and data linearly: kappa = 1 - t.
"""

from __future__ import annotations

import torch
from torch import Tensor


def jumps(time_R: Tensor, next_time_R: Tensor, uniform_RW: Tensor) -> Tensor:
    """(R, W) bool: positions that jump to their drawn clean token between the times t and s.

    The rate d kappa / (1 - kappa) is 1/t, held over the step, so the chance is
    1 - exp(-(t - s) / t); it tends to MDLM's 1 - s/t as the step shrinks. At s = 0 all jump.
    """
    chance_R = -torch.expm1(next_time_R / time_R - 1)
    chance_R = torch.where(next_time_R > 0, chance_R, torch.ones_like(chance_R))
    return uniform_RW < chance_R[:, None]
