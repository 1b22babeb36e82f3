"""Terms of D3PM's bound in closed form, for vocabularies too large for matrices.

A step goes from time s to a later t; alpha is the share of tokens that noise has left alone by
then. `raydiff.diffusion.d3pm` has the same terms by matrices. Source: Austin et al. 2021, D3PM,
eqs. 1, 3 and 4. Shapes: N positions, V vocabulary entries.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST = 1e-30


def uniform_kl(
    logits_NV: Tensor, noised_N: Tensor, clean_N: Tensor, alpha_s_N: Tensor, alpha_t_N: Tensor
) -> Tensor:
    """KL(q(x_s | x_t, x_0) || p(x_s | x_t)) in nats [N] under uniform noise, where p is the mean of
    q(x_s | x_t, x_0) over x_0 drawn from `logits_NV`.

    `alpha_s_N` is above `alpha_t_N`. At alpha_s = 1 it is the negative log-likelihood of the last
    step.
    """
    size = logits_NV.shape[1]
    spread_N = (1 - alpha_s_N) / size
    moved_N = (1 - alpha_t_N / alpha_s_N) / size
    other_N = (1 - alpha_t_N) / size
    weights_NV = logits_NV.softmax(dim=-1) / other_N[:, None]
    same_N1 = weights_NV.gather(1, noised_N[:, None]) * (other_N / (alpha_t_N + other_N))[:, None]
    weights_NV = weights_NV.scatter(1, noised_N[:, None], same_N1)
    mixed_NV = alpha_s_N[:, None] * weights_NV + (spread_N * weights_NV.sum(dim=1))[:, None]
    logs_NV = mixed_NV.clamp_min(_LEAST).log()
    is_same_N = noised_N == clean_N
    evidence_N = other_N + alpha_t_N * is_same_N
    low_N, high_N = spread_N / evidence_N, (alpha_s_N + spread_N) / evidence_N
    stay_N = alpha_t_N / alpha_s_N + moved_N
    log_low_N, log_high_N = low_N.clamp_min(_LEAST).log(), high_N.log()
    at_noised_N, at_clean_N = (logs_NV.gather(1, x[:, None])[:, 0] for x in (noised_N, clean_N))
    named_N = torch.where(is_same_N, at_clean_N, at_clean_N + at_noised_N)
    count_N = size - 2 + is_same_N.to(logs_NV.dtype)
    rest_N = moved_N * low_N * (count_N * log_low_N - (logs_NV.sum(dim=1) - named_N))
    clean_rate_N = torch.where(is_same_N, stay_N, moved_N)
    clean_part_N = clean_rate_N * high_N * (log_high_N - at_clean_N)
    noised_part_N = stay_N * low_N * (log_low_N - at_noised_N)
    return rest_N + clean_part_N + torch.where(is_same_N, 0.0, noised_part_N)


def absorbing_weight(alpha_s_N: Tensor, alpha_t_N: Tensor) -> Tensor:
    """What a step's bound multiplies the cross-entropy of each hidden position by [N]: the
    probability (alpha_s - alpha_t) / (1 - alpha_t) that the step reveals it.

    Summed over ever shorter steps with alpha = 1 - t it is LLaDA's 1/t (Nie et al. 2025, eq. 3).
    """
    return (alpha_s_N - alpha_t_N) / (1 - alpha_t_N)
