"""Ancestral sampling: the reverse process step by step, under log-linear noise (alpha = 1 - t).

Shapes: R rows, W positions.
"""

from __future__ import annotations

from torch import Tensor

from raydiff.diffusion.posterior import draw_posterior, uniform_posterior
from raydiff.diffusion.ranking import ranks


def unmask(open_RW: Tensor, time_R: Tensor, next_time_R: Tensor, uniform_RW: Tensor) -> Tensor:
    """Open positions that leave the mask between the times t and s: each with chance 1 - s/t.

    Source: MDLM (Sahoo et al. 2024). At s = 0 all do. Returns (R, W) bool.
    """
    stay_R = next_time_R / time_R
    return (uniform_RW >= stay_R[:, None]) & open_RW


def first_hitting(open_RW: Tensor, uniform_RW: Tensor) -> Tensor:
    """The one open position that leaves the mask at the next event, every one equally likely.

    Source: first-hitting sampler (Zheng et al. 2024), as used by BD3LM (Arriola et
    al. 2025). A row without open positions commits none.
    """
    return (ranks(uniform_RW, open_RW) == 0) & open_RW


def denoise_uniform(
    tokens_RW: Tensor,
    clean_RW: Tensor,
    time_R: Tensor,
    next_time_R: Tensor,
    choice_RW: Tensor,
    noise_RW: Tensor,
    vocab_size: int,
) -> Tensor:
    """The canvas at the time s, given that at t and the clean tokens drawn for it.

    Source: D3PM (Austin et al. 2021, equation 4 with x_0 drawn first). `choice_RW` is uniform
    in [0, 1), `noise_RW` holds random tokens. At s = 0 it is the clean tokens.
    """
    posterior = uniform_posterior(
        tokens_RW == clean_RW, 1 - time_R[:, None], 1 - next_time_R[:, None], vocab_size
    )
    return draw_posterior(tokens_RW, clean_RW, posterior, choice_RW, noise_RW)
