"""Rounding: from embeddings to tokens, and back for the clamping trick.

Shapes: M positions (of any rows), V vocabulary entries, E embedding width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def euclidean(x_ME: Tensor, table_VE: Tensor) -> Tensor:
    """Scores (M, V): minus the squared distance to each embedding."""
    squares_V = table_VE.square().sum(dim=1)
    squares_M1 = x_ME.square().sum(dim=1, keepdim=True)
    return 2 * x_ME @ table_VE.T - squares_V - squares_M1


def cosine(x_ME: Tensor, table_VE: Tensor) -> Tensor:
    """Scores (M, V): the cosine of the angle to each embedding."""
    return (
        torch.nn.functional.normalize(x_ME, dim=1)
        @ torch.nn.functional.normalize(table_VE, dim=1).T
    )


def gumbel(logits_MV: Tensor, temperature_M: Tensor, uniforms_MV: Tensor) -> Tensor:
    """Perturbed scores (M, V) whose largest is a draw from softmax(logits / temperature), and whose
    softmax is its relaxation (Jang et al. 2017, Gumbel-softmax, eq. 1-2).

    `uniforms_MV` in [0, 1); a temperature of 0 leaves the logits as they are.
    """
    tiny = torch.finfo(uniforms_MV.dtype).tiny
    noise_MV = -(-uniforms_MV.clamp(min=tiny).log()).clamp(min=tiny).log()
    warm_M1 = (temperature_M > 0)[:, None]
    scale_M1 = torch.where(warm_M1, temperature_M[:, None], 1)
    return torch.where(warm_M1, logits_MV / scale_M1 + noise_MV, logits_MV)


def nearest(scores_MV: Tensor) -> Tensor:
    """Token (M,) of the highest score; ties go to the lowest id."""
    return scores_MV.max(dim=1).indices


def expected(scores_MV: Tensor, temperature_M: Tensor, table_VE: Tensor) -> Tensor:
    """Mean embedding (M, E) under softmax(scores / temperature): at temperature 0 that of the best
    token.
    """
    warm_M1 = (temperature_M > 0)[:, None]
    scale_M1 = torch.where(warm_M1, temperature_M[:, None], 1)
    soft_ME = (scores_MV / scale_M1).softmax(dim=1) @ table_VE
    return torch.where(warm_M1, soft_ME, table_VE[nearest(scores_MV)])


def entropy(scores_MV: Tensor) -> Tensor:
    """Entropy (M,) in nats of softmax(scores); entries at minus infinity count nothing."""
    logs_MV = scores_MV.log_softmax(dim=1)
    return -torch.where(logs_MV.isneginf(), 0, logs_MV.exp() * logs_MV).sum(dim=1)
