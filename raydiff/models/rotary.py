"""Rotary position embedding (Su et al. 2021), on all or on the first part of each head.

Shapes: M positions, H heads, E head size, R rotated size (R <= E).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


class Rotary:
    """The rotation by given frequencies."""

    def __init__(self, frequencies_F: Tensor, scale: float, device: torch.device) -> None:
        """`scale` multiplies cosine and sine."""
        self._frequencies_F = frequencies_F.to(device=device, dtype=torch.float32)
        self._scale = scale

    def __call__(self, positions_M: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine [M, 1, R] of the rotation at each position."""
        angles_MF = positions_M[:, None].float() * self._frequencies_F
        angles_M1R = torch.cat([angles_MF, angles_MF], dim=-1)[:, None, :]
        cos_M1R, sin_M1R = angles_M1R.cos() * self._scale, angles_M1R.sin() * self._scale
        return cos_M1R.to(dtype), sin_M1R.to(dtype)


def rotary_of(module: Any, device: torch.device) -> Rotary:
    """The rotation of a transformers rotary module.

    Its frequencies are computed afresh from the module's config, because buffers of a module that
    was made on the meta device hold nothing.
    """
    with torch.device("cpu"):
        if module.rope_type == "default":
            frequencies_F, scale = module.compute_default_rope_parameters(module.config)
        else:
            initialise = ROPE_INIT_FUNCTIONS[module.rope_type]
            frequencies_F, scale = initialise(module.config, torch.device("cpu"))
    return Rotary(frequencies_F, float(scale), device)


def rotate(x_MHE: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the first R values of each head; value i pairs with value i + R / 2."""
    cos_M1R, sin_M1R = rotation
    size = cos_M1R.shape[-1]
    turned_MHR, rest_MHP = x_MHE[..., :size], x_MHE[..., size:]
    first, second = turned_MHR.chunk(2, dim=-1)
    swapped_MHR = torch.cat([-second, first], dim=-1)
    turned_MHR = turned_MHR * cos_M1R + swapped_MHR * sin_M1R
    return torch.cat([turned_MHR, rest_MHP], dim=-1) if rest_MHP.shape[-1] else turned_MHR
