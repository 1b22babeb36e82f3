"""Solvers: from noised embeddings and the clean ones predicted of them to the next, lower level.

Every solver is a pure function; each row is at a level of its own, noise comes in as a tensor. All
take x0: `gaussian.clean` makes it of any prediction. Landing on clean data (sigma 0) gives x0 under
all of them. Shapes: R rows, W positions, E embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from raydiff.diffusion.gaussian import Level, spread

_ADAMS_BASHFORTH = ((1.0,), (3 / 2, -1 / 2), (23 / 12, -16 / 12, 5 / 12))
_ADAMS_BASHFORTH_4 = (55 / 24, -59 / 24, 37 / 24, -9 / 24)


def ddpm(x_RWE: Tensor, x0_RWE: Tensor, now: Level, after: Level, noise_RWE: Tensor) -> Tensor:
    """A draw from the posterior q(x_after | x_now, x0) (Ho et al. 2020, eq. 7)."""
    ratio_R = now.alpha / after.alpha
    added_R = (now.sigma**2 - ratio_R**2 * after.sigma**2).clamp(min=0)
    from_x = spread(ratio_R * after.sigma**2 / now.sigma**2)
    from_x0 = spread(after.alpha * added_R / now.sigma**2)
    deviation = spread(added_R.sqrt() * after.sigma / now.sigma)
    return from_x * x_RWE + from_x0 * x0_RWE + deviation * noise_RWE


def ddim(
    x_RWE: Tensor,
    x0_RWE: Tensor,
    now: Level,
    after: Level,
    eta_R: Tensor,
    noise_RWE: Tensor,
) -> Tensor:
    """Song et al. 2021 (DDIM), eq. 12 and 16: `eta_R` 0 is deterministic, 1 is DDPM."""
    added_R = (now.sigma**2 - (now.alpha / after.alpha * after.sigma) ** 2).clamp(min=0)
    fresh_R = eta_R * after.sigma / now.sigma * added_R.sqrt()
    kept_R = (after.sigma**2 - fresh_R**2).clamp(min=0).sqrt()
    old_noise_RWE = now.noise(x_RWE, x0_RWE)
    return (
        spread(after.alpha) * x0_RWE + spread(kept_R) * old_noise_RWE + spread(fresh_R) * noise_RWE
    )


def dpm_solver(
    x_RWE: Tensor,
    x0s: Sequence[Tensor],
    levels: Sequence[Level],
    after: Level,
    order_R: Tensor,
) -> Tensor:
    """Multistep DPM-Solver++ (Lu et al. 2022, DPM-Solver++, algorithm 2 and appendix B).

    `x0s` are three predictions (R, W, E), the newest first, `levels` where they were made, the
    first being that of `x_RWE`. `order_R` in {1, 2, 3} is at most one more than the predictions a
    row has made before; what a row's order does not read may hold anything finite.
    """
    step_R = after.half_log_snr - levels[0].half_log_snr
    decay_R = (-step_R).exp()
    reach_R = after.alpha * (1 - decay_R)
    first = spread(after.sigma / levels[0].sigma) * x_RWE + spread(reach_R) * x0s[0]
    second, third = _dpm_corrections(x0s, levels, step_R, decay_R, after.alpha)
    # landing on clean data is an infinite step: x0 itself
    order_R = torch.where(torch.isfinite(step_R), order_R, 1)
    extra = torch.where(spread(order_R == 2), second, third)
    return torch.where(spread(order_R == 1), first, first + extra)


def _dpm_corrections(
    x0s: Sequence[Tensor],
    levels: Sequence[Level],
    step_R: Tensor,
    decay_R: Tensor,
    alpha_R: Tensor,
) -> tuple[Tensor, Tensor]:
    """What orders 2 and 3 add to order 1: integrals of the polynomial through the predictions.

    The released code takes half of the quadratic term, which leaves it at order 2.
    """
    lambdas = [level.half_log_snr for level in levels]
    newer_R = ((lambdas[0] - lambdas[1]) / step_R).nan_to_num(0, posinf=0, neginf=0)
    older_R = ((lambdas[1] - lambdas[2]) / step_R).nan_to_num(0, posinf=0, neginf=0)
    slope = _divided(x0s[0] - x0s[1], newer_R)
    slope_before = _divided(x0s[1] - x0s[2], older_R)
    second = spread(alpha_R * (1 - decay_R) / 2) * slope
    bend = _divided(slope - slope_before, newer_R + older_R)
    linear_R = alpha_R * (1 + (decay_R - 1) / step_R)
    quadratic_R = alpha_R * (1 - 2 * (decay_R - 1 + step_R) / step_R**2)
    third = spread(linear_R) * (slope + spread(newer_R) * bend) + spread(quadratic_R) * bend
    return second, third


def _divided(difference_RWE: Tensor, by_R: Tensor) -> Tensor:
    """A divided difference; 0 where the levels are equal or infinitely far apart (`by_R` 0)."""
    usable_R = by_R > 0
    by_R = torch.where(usable_R, by_R, 1)
    return torch.where(spread(usable_R), difference_RWE / spread(by_R), 0)


def plms(
    x_RWE: Tensor,
    x0_RWE: Tensor,
    older_noises: Sequence[Tensor],
    known_R: Tensor,
    now: Level,
    after: Level,
) -> Tensor:
    """Pseudo linear multistep (Liu et al. 2022, PNDM, eq. 12): a deterministic DDIM step along an
    Adams-Bashforth average of the noise predicted now and before.

    `older_noises` are three (R, W, E), the newest first; `known_R` in 0..3 says how many of them a
    row has.
    """
    noise_RWE = now.noise(x_RWE, x0_RWE)
    weights_R4 = _adams_bashforth(known_R, x_RWE.dtype)
    noises = (noise_RWE, *older_noises)
    average_RWE = sum(
        (spread(weights_R4[:, i]) * noises[i] for i in range(4)), torch.zeros_like(x_RWE)
    )
    plain_RWE = spread(after.alpha) * x0_RWE + spread(after.sigma) * noise_RWE
    # the first step may start where alpha is 0: it has no correction
    gain_R = after.sigma - after.alpha * now.sigma / now.alpha
    gain_R = torch.where((known_R > 0) & (after.sigma > 0), gain_R, 0)
    return plain_RWE + spread(gain_R) * (average_RWE - noise_RWE)


def _adams_bashforth(known_R: Tensor, dtype: torch.dtype) -> Tensor:
    """(R, 4) weights of the newest and three older derivatives, by how many are known."""
    rows = [[*weights, *[0.0] * (4 - len(weights))] for weights in _ADAMS_BASHFORTH]
    table = torch.tensor([*rows, list(_ADAMS_BASHFORTH_4)], dtype=dtype, device=known_R.device)
    return table[known_R]


def to_rectified(x_RWE: Tensor, level: Level) -> tuple[Tensor, Tensor]:
    """The point and time of the rectified path that any Gaussian path passes through, rescaled:
    y = x / (alpha + sigma) at time sigma / (alpha + sigma) in [0, 1]. Returns (y, time_R).
    """
    total_R = level.alpha + level.sigma
    return x_RWE / spread(total_R), level.sigma / total_R


def from_rectified(y_RWE: Tensor, level: Level) -> Tensor:
    """Undo `to_rectified`."""
    return y_RWE * spread(level.alpha + level.sigma)


def euler(y_RWE: Tensor, velocity_RWE: Tensor, time_R: Tensor, after_R: Tensor) -> Tensor:
    """One Euler step of the flow dy/dt = velocity (Lipman et al. 2023, flow matching)."""
    return y_RWE + spread(after_R - time_R) * velocity_RWE


def heun(
    y_RWE: Tensor, first_RWE: Tensor, second_RWE: Tensor, time_R: Tensor, after_R: Tensor
) -> Tensor:
    """One Heun step from `y_RWE`: `first_RWE` is the velocity there, `second_RWE` the velocity at
    the point and time that `euler` reaches with it.
    """
    return euler(y_RWE, (first_RWE + second_RWE) / 2, time_R, after_R)
