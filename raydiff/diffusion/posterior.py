"""One step back through uniform noise, given the clean token: the closed form of D3PM.

Shapes: tensors broadcast against each other; alpha is the share of tokens that the noise left
alone (1 - t under the log-linear schedule).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class UniformPosterior(NamedTuple):
    """q(x_s | x_t, x_0): what x_s is; the three shares sum to 1."""

    stay: Tensor
    """Probability of x_s = x_t by staying."""
    clean: Tensor
    """Probability of x_s = x_0 by having been clean."""
    noise: Tensor
    """Probability of x_s being any token at random, x_t and x_0 included."""


def uniform_posterior(
    same: Tensor, alpha_t: Tensor, alpha_s: Tensor, vocab_size: int
) -> UniformPosterior:
    """q(x_s | x_t, x_0) for s < t, where `same` (bool) tells whether x_t = x_0.

    Source: D3PM (Austin et al. 2021, equation 3) with uniform transitions:
    x_t is x_s with probability alpha_t / alpha_s, otherwise uniform, and likewise x_s of x_0, so
    the product of both has four terms: a chain that never jumped (only if x_t = x_0), one that
    jumped before s, after s, or on both sides.
    """
    kept_s_to_t = alpha_t / alpha_s.clamp(min=torch.finfo(alpha_s.dtype).tiny)
    jumped_s_to_t = 1 - kept_s_to_t
    never = kept_s_to_t * alpha_s * vocab_size * same
    before_s = kept_s_to_t * (1 - alpha_s)
    after_s = jumped_s_to_t * alpha_s
    both = jumped_s_to_t * (1 - alpha_s)
    total = never + before_s + after_s + both
    return UniformPosterior((never + before_s) / total, after_s / total, both / total)


def uniform_tokens(uniform: Tensor, vocab_size: int) -> Tensor:
    """Tokens drawn evenly from the whole vocabulary by uniform numbers in [0, 1)."""
    scaled = (uniform.double() * vocab_size).long()
    return scaled.clamp(max=vocab_size - 1)


def draw_posterior(
    tokens: Tensor,
    clean: Tensor,
    posterior: UniformPosterior,
    choice: Tensor,
    noise: Tensor,
) -> Tensor:
    """x_s by one uniform number that chooses among the posterior's cases and random tokens."""
    drawn = torch.where(choice < posterior.clean, clean, noise)
    return torch.where(choice >= 1 - posterior.stay, tokens, drawn)
