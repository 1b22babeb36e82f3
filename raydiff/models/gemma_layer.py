"""One layer of Gemma 4's kind: normalised queries, keys and values, then a dense feed-forward part
beside routed experts.

Shapes: B rows, L positions, M live ones, D hidden size, H query heads, G key/value heads, E head
size; a layer's cache is [2, B, G, N, E].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from raydiff.models.attention import attend
from raydiff.models.packing import Packing
from raydiff.models.rotary import rotate
from raydiff.models.sliding import Reach

Rotation = tuple[Tensor, Tensor]


class GemmaLayer:
    """Runs the parts of a transformers layer. It does not know whether it encodes or denoises: that
    is in the reach and in the scalar."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._attention = module.self_attn
        self.kind: str = module.self_attn.layer_type
        """ "sliding_attention" or "full_attention"."""

    def run(
        self,
        hidden_MD: Tensor,
        packing: Packing,
        rotation: Rotation,
        reach: Reach,
        past: Tensor | None,
        scalar: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Hidden states [M, D] and the new positions' keys and values [2, B, G, L, E]."""
        normed_MD = norm(self._module.input_layernorm, hidden_MD)
        kv = self._keys_values(normed_MD, packing, rotation)
        q_BHLE = self._queries(normed_MD, packing, rotation)
        # queries and keys have unit norm times learned weights: scores take no further scale
        context_BLX = attend(q_BHLE, kv, reach.cached(past), reach.bias, scale=1.0)
        return self._finish(hidden_MD, packing.pack(context_BLX), scalar), kv

    def keys_values(self, hidden_MD: Tensor, packing: Packing, rotation: Rotation) -> Tensor:
        """The new positions' keys and values alone, for the last layer of an encoding."""
        normed_MD = norm(self._module.input_layernorm, hidden_MD)
        return self._keys_values(normed_MD, packing, rotation)

    def _queries(self, normed_MD: Tensor, packing: Packing, rotation: Rotation) -> Tensor:
        q_MHE = self._heads(self._attention.q_proj(normed_MD))
        q_MHE = rotate(norm(self._attention.q_norm, q_MHE), rotation)
        q_BLX = packing.spread(q_MHE.flatten(1))
        return q_BLX.view(*q_BLX.shape[:2], *q_MHE.shape[1:]).transpose(1, 2)

    def _keys_values(self, normed_MD: Tensor, packing: Packing, rotation: Rotation) -> Tensor:
        attention = self._attention
        k_MGE = self._heads(attention.k_proj(normed_MD))
        # layers of full attention have no value projection: values are the plain keys, normalised
        v_MGE = k_MGE if attention.v_proj is None else self._heads(attention.v_proj(normed_MD))
        k_MGE = rotate(norm(attention.k_norm, k_MGE), rotation)
        kv_M2GE = torch.stack([k_MGE, norm(attention.v_norm, v_MGE)], dim=1)
        kv_BLX = packing.spread(kv_M2GE.flatten(1))
        return kv_BLX.view(*kv_BLX.shape[:2], *kv_M2GE.shape[1:]).permute(2, 0, 3, 1, 4)

    def _heads(self, projected_MX: Tensor) -> Tensor:
        return projected_MX.view(projected_MX.shape[0], -1, self._attention.head_dim)

    def _finish(self, hidden_MD: Tensor, context_MX: Tensor, scalar: Tensor) -> Tensor:
        module = self._module
        attended_MD = self._attention.o_proj(context_MX)
        hidden_MD = hidden_MD + norm(module.post_attention_layernorm, attended_MD)
        dense_MD = module.mlp(norm(module.pre_feedforward_layernorm, hidden_MD))
        _, weights_MT, experts_MT = module.router(hidden_MD)
        normed_MD = norm(module.pre_feedforward_layernorm_2, hidden_MD)
        routed_MD = module.experts(normed_MD, experts_MT, weights_MT)
        both_MD = norm(module.post_feedforward_layernorm_1, dense_MD)
        both_MD = both_MD + norm(module.post_feedforward_layernorm_2, routed_MD)
        both_MD = norm(module.post_feedforward_layernorm, both_MD)
        finished_MD: Tensor = (hidden_MD + both_MD) * scalar
        return finished_MD


def norm(module: Any, x: Tensor) -> Tensor:
    """A transformers RMS norm in one kernel; it may have no weight."""
    weight = module.weight if module.with_scale else None
    return rms_norm(x, x.shape[-1:], weight, module.eps)
