"""Attention of new positions over cached and new ones.

Shapes: B rows, L new positions, N cached, K = N + L, H query heads, G key/value heads (H a multiple
of G; query head h reads key/value head h * G // H), E head size; keys and values are one tensor
[2, B, G, N or L, E].
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

LONG = 1024
"""Inputs from this length on copy shared keys and values for each of their query heads: their
masks, which would be copied otherwise, grow with the square of it."""


def mask_bias(mask_BLK: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Additive mask [B, 1, L, K] of a bool one; a large finite value where it is False, so that a
    row that may attend to nothing gives no NaN.
    """
    if mask_BLK is None:
        return None
    bias_BLK = torch.zeros(mask_BLK.shape, dtype=dtype, device=mask_BLK.device)
    return bias_BLK.masked_fill_(~mask_BLK, torch.finfo(dtype).min / 2).unsqueeze(1)


def attend(
    q_BHLE: Tensor,
    kv: Tensor,
    past: Tensor | None,
    bias_B1LK: Tensor | None,
    scale: float | None = None,
) -> Tensor:
    """Softmax attention [B, L, H * E]; `scale` multiplies the scores, 1 / sqrt(E) without it."""
    scale = q_BHLE.shape[-1] ** -0.5 if scale is None else scale
    shape_BHLE = q_BHLE.shape
    shared = shape_BHLE[1] // kv.shape[2]
    if shared > 1 and shape_BHLE[2] >= LONG:
        kv = kv.repeat_interleave(shared, dim=2)
        past = None if past is None else past.repeat_interleave(shared, dim=2)
        shared = 1
    if shared > 1:
        # queries that share a key/value head become its rows, so that no key is copied
        q_BHLE = q_BHLE.reshape(shape_BHLE[0], kv.shape[2], -1, shape_BHLE[3])
        bias_B1LK = None if bias_B1LK is None else bias_B1LK.repeat(1, 1, shared, 1)
    if q_BHLE.device.type == "cpu":
        context_BHLE = _attend_plainly(q_BHLE * scale, kv, past, bias_B1LK)
    else:
        k_BHKE, v_BHKE = kv if past is None else torch.cat([past, kv], dim=3)
        context_BHLE = scaled_dot_product_attention(q_BHLE, k_BHKE, v_BHKE, bias_B1LK, scale=scale)
    return context_BHLE.reshape(shape_BHLE).transpose(1, 2).flatten(2)


def _attend_plainly(
    q_BHLE: Tensor, kv: Tensor, past: Tensor | None, bias_B1LK: Tensor | None
) -> Tensor:
    # On a CPU, with many narrow heads, plain products beat the fused kernel: 1.3x forward and
    # 3 to 6 times with backward. Two products a side save copying the cache.
    scores_BHLK = torch.matmul(q_BHLE, kv[0].transpose(-1, -2))
    if past is not None:
        past_scores = torch.matmul(q_BHLE, past[0].transpose(-1, -2))
        scores_BHLK = torch.cat([past_scores, scores_BHLK], dim=-1)
    if bias_B1LK is not None:
        scores_BHLK = scores_BHLK + bias_B1LK
    weights_BHLK = torch.softmax(scores_BHLK, dim=-1)
    if past is None:
        return torch.matmul(weights_BHLK, kv[1])
    split = past.shape[3]
    context_BHLE = torch.matmul(weights_BHLK[..., :split], past[1])
    return context_BHLE + torch.matmul(weights_BHLK[..., split:], kv[1])
