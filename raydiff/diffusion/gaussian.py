"""Gaussian noise on embeddings: how much there is at a time, and what a network predicts of it.

A noised embedding is x = alpha * x0 + sigma * noise, each row at a level of its own. Shapes: R
rows, W positions, E embedding width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from raydiff.spec import NoiseSchedule, Prediction

LEAST_ALPHA_BAR = 1e-5
"""alpha^2 of pure noise: not 0, so that the signal-to-noise ratio stays finite."""
_BETA_MIN, _BETA_MAX = 0.1, 20.0
_COSINE_OFFSET = 0.008
_SQRT_OFFSET = 1e-4


@dataclass(frozen=True, kw_only=True)
class Level:
    """Noise levels of rows, (R,) each."""

    alpha: Tensor
    """Scale of the clean embedding."""
    sigma: Tensor
    """Standard deviation of the noise."""

    @property
    def half_log_snr(self) -> Tensor:
        """(R,) log(alpha / sigma), the lambda of DPM-Solver; infinite at clean data."""
        return self.alpha.log() - self.sigma.log()

    def mix(self, x0_RWE: Tensor, noise_RWE: Tensor) -> Tensor:
        """Noised embeddings at these levels."""
        return spread(self.alpha) * x0_RWE + spread(self.sigma) * noise_RWE

    def noise(self, x_RWE: Tensor, x0_RWE: Tensor) -> Tensor:
        """The noise in `x_RWE` if `x0_RWE` is clean; sigma must not be 0."""
        return (x_RWE - spread(self.alpha) * x0_RWE) / spread(self.sigma)


def spread(values_R: Tensor) -> Tensor:
    """(R, 1, 1), to multiply (R, W, E) with."""
    return values_R[:, None, None]


def level_at(schedule: NoiseSchedule, time_R: Tensor) -> Level:
    """Levels at times in [0, 1]: 1 is pure noise, exactly 0 is clean data under every schedule, as
    published samplers take it (their alpha_bar before the first step is 1).

    sqrt: alpha_bar = 1 - sqrt(t + 1e-4) (Li et al. 2022, Diffusion-LM, appendix A).
    cosine: Nichol and Dhariwal 2021, eq. 17.
    linear: Ho et al. 2020, in the continuous limit (Song et al. 2021, eq. 32).
    rectified: x = (1 - t) x0 + t noise (Liu et al. 2023, rectified flow).
    """
    clean_R = time_R <= 0
    if schedule == "rectified":
        alpha_R, sigma_R = 1 - time_R, time_R
    else:
        bar_R = _ALPHA_BARS[schedule](time_R).clamp(min=LEAST_ALPHA_BAR)
        alpha_R, sigma_R = bar_R.sqrt(), (1 - bar_R).sqrt()
    return Level(
        alpha=torch.where(clean_R, torch.ones_like(alpha_R), alpha_R),
        sigma=torch.where(clean_R, torch.zeros_like(sigma_R), sigma_R),
    )


def time_of_step(step_R: Tensor, steps_R: Tensor, first_time: float) -> Tensor:
    """Time before step `step_R` of `steps_R`, evenly spaced from `first_time` down to 0."""
    return first_time * (1 - step_R.float() / steps_R.float())


def target(prediction: Prediction, x0_RWE: Tensor, noise_RWE: Tensor) -> Tensor:
    """What the network is to predict. A velocity is noise - x0, the slope of the rectified path."""
    if prediction == "x0":
        return x0_RWE
    return noise_RWE if prediction == "epsilon" else noise_RWE - x0_RWE


def clean(prediction: Prediction, predicted_RWE: Tensor, x_RWE: Tensor, level: Level) -> Tensor:
    """The clean embeddings x0 that a network's prediction at `x_RWE` implies.

    From epsilon the error grows by sigma / alpha: near pure noise it is large.
    """
    if prediction == "x0":
        return predicted_RWE
    alpha, sigma = spread(level.alpha), spread(level.sigma)
    if prediction == "epsilon":
        return (x_RWE - sigma * predicted_RWE) / alpha
    return (x_RWE - sigma * predicted_RWE) / (alpha + sigma)


def _sqrt(time_R: Tensor) -> Tensor:
    return 1 - (time_R + _SQRT_OFFSET).sqrt()


def _cosine(time_R: Tensor) -> Tensor:
    def squared(values: Tensor) -> Tensor:
        return ((values + _COSINE_OFFSET) / (1 + _COSINE_OFFSET) * math.pi / 2).cos() ** 2

    return squared(time_R) / squared(torch.zeros_like(time_R))


def _linear(time_R: Tensor) -> Tensor:
    return (-_BETA_MIN * time_R - (_BETA_MAX - _BETA_MIN) / 2 * time_R**2).exp()


_ALPHA_BARS: dict[NoiseSchedule, Callable[[Tensor], Tensor]] = {
    "sqrt": _sqrt,
    "cosine": _cosine,
    "linear": _linear,
}
