"""Classifier-free guidance.

Shapes: N positions, V vocabulary entries.
"""

from __future__ import annotations

from torch import Tensor


def combine(conditional_NV: Tensor, unconditional_NV: Tensor, scale_N: Tensor) -> Tensor:
    """Logits pushed away from those without the prompt: un + (scale + 1) (cond - un).

    At scale 0 they are the conditional logits, to the bit. Logits must be finite: forbid tokens
    afterwards. Source: Ho and Salimans 2022; LLaDA (Nie et al. 2025).
    """
    return conditional_NV + scale_N[:, None] * (conditional_NV - unconditional_NV)
