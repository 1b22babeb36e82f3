"""Causal language models of the pre-norm Llama kind as Denoisers: Llama, Qwen2, Qwen3, Qwen3-MoE
and GLM-4-MoE.

The forward is our own over the stock module's parts, because the stock one takes its mask, its
positions and its cache as a causal model needs them. Shapes: B rows, L new positions, N cached,
K = N + L, M live or picked positions, D hidden size, H query heads, G key/value heads, E head size,
V vocabulary; a layer's cache is [2, B, G, N, E].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from raydiff.models.attention import attend, mask_bias
from raydiff.models.denoiser import Cache
from raydiff.models.packing import Packing
from raydiff.models.rotary import rotary_of, rotate
from raydiff.spec import ModelSpec

Rotation = tuple[Tensor, Tensor]


def build(config: Mapping[str, Any]) -> nn.Module:
    """The causal language model of a stock config, on torch's default device.

    On the meta device too: nothing of it is needed but its parameters and persistent buffers.
    """
    fields = dict(config)
    stock = AutoConfig.for_model(fields.pop("model_type"), **fields)
    module: nn.Module = AutoModelForCausalLM.from_config(stock)
    return module


def wrap(module: nn.Module, spec: ModelSpec) -> DecoderDenoiser:
    """The denoiser that runs a module whose weights are in place."""
    return DecoderDenoiser(module, spec)


class DecoderDenoiser:
    """Runs a causal language model as a denoiser; implements `raydiff.models.denoiser.Denoiser`."""

    def __init__(self, module: Any, spec: ModelSpec) -> None:
        self.module = module
        self.spec = spec
        self._body = module.model
        self._layers: list[Any] = list(module.model.layers)
        self._head_dim: int = self._layers[0].self_attn.head_dim
        self._embeddings: Tensor = module.model.embed_tokens.weight
        self._rotary = rotary_of(module.model.rotary_emb, self._embeddings.device)

    @property
    def device(self) -> torch.device:
        return self._embeddings.device

    @property
    def dtype(self) -> torch.dtype:
        return self._embeddings.dtype

    def forward(
        self,
        tokens_BL: Tensor,
        positions_BL: Tensor,
        mask_BLK: Tensor | None,
        past: Cache | None,
        want_kv: bool,
        live_BL: Tensor | None = None,
        soft_BLD: Tensor | None = None,
    ) -> tuple[Tensor, Cache | None]:
        """See `Denoiser.forward`."""
        packing = Packing(tokens_BL.shape[0], tokens_BL.shape[1], live_BL)
        run = _Run(self, packing, positions_BL, mask_BLK)
        hidden_MD = self._body.embed_tokens(packing.pack(tokens_BL))
        kept: list[Tensor] = []
        for layer, layer_past in zip(
            self._layers, _per_layer(past, len(self._layers)), strict=True
        ):
            hidden_MD, kv = run.layer(layer, hidden_MD, layer_past)
            kept.append(kv)
        hidden_MD = self._body.norm(hidden_MD)
        return packing.spread(hidden_MD), (torch.stack(kept),) if want_kv else None

    def encode(
        self,
        tokens_BL: Tensor,
        positions_BL: Tensor,
        mask_BLK: Tensor | None,
        past: Cache | None,
        live_BL: Tensor | None = None,
    ) -> Cache:
        """See `Denoiser.encode`."""
        packing = Packing(tokens_BL.shape[0], tokens_BL.shape[1], live_BL)
        run = _Run(self, packing, positions_BL, mask_BLK)
        hidden_MD = self._body.embed_tokens(packing.pack(tokens_BL))
        kept: list[Tensor] = []
        *inner, last = self._layers
        for layer, layer_past in zip(inner, _per_layer(past, len(self._layers)), strict=False):
            hidden_MD, kv = run.layer(layer, hidden_MD, layer_past)
            kept.append(kv)
        kept.append(run.keys_and_values(last, last.input_layernorm(hidden_MD)))
        return (torch.stack(kept),)

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """See `Denoiser.logits`."""
        logits_MV: Tensor = self.module.lm_head(hidden_MD)
        return logits_MV

    def rotation(self, positions_M: Tensor) -> Rotation:
        """Cosine and sine of the rotation at each position."""
        return self._rotary(positions_M, self.dtype)

    def split_heads(self, projected_MX: Tensor) -> Tensor:
        """[M, heads, E]."""
        return projected_MX.view(projected_MX.shape[0], -1, self._head_dim)


class _Run:
    """What the layers of one forward share."""

    def __init__(
        self,
        denoiser: DecoderDenoiser,
        packing: Packing,
        positions_BL: Tensor,
        mask_BLK: Tensor | None,
    ) -> None:
        self._denoiser = denoiser
        self._packing = packing
        self._rotation = denoiser.rotation(packing.pack(positions_BL))
        self._bias_B1LK = mask_bias(mask_BLK, denoiser.dtype)

    def layer(self, layer: Any, hidden_MD: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """One whole layer: hidden states and the layer's new cache."""
        attention = layer.self_attn
        normed_MD = layer.input_layernorm(hidden_MD)
        kv = self.keys_and_values(layer, normed_MD)
        q_MHE = self._denoiser.split_heads(attention.q_proj(normed_MD))
        if _has_norms(attention):
            q_MHE = attention.q_norm(q_MHE)
        q_BHLE = self._spread_heads(rotate(q_MHE, self._rotation))
        context_BLX = attend(q_BHLE, kv, past, self._bias_B1LK)
        hidden_MD = hidden_MD + attention.o_proj(self._packing.pack(context_BLX))
        # modules with experts take [rows, positions, D]
        normed_1MD = layer.post_attention_layernorm(hidden_MD)[None]
        return hidden_MD + layer.mlp(normed_1MD)[0], kv

    def keys_and_values(self, layer: Any, normed_MD: Tensor) -> Tensor:
        """[2, B, G, L, E] of a layer's new positions, the keys rotated."""
        attention = layer.self_attn
        k_MGE = self._denoiser.split_heads(attention.k_proj(normed_MD))
        if _has_norms(attention):
            k_MGE = attention.k_norm(k_MGE)
        v_MGE = self._denoiser.split_heads(attention.v_proj(normed_MD))
        kv_MSGE = torch.stack([rotate(k_MGE, self._rotation), v_MGE], dim=1)
        kv_BLX = self._packing.spread(kv_MSGE.flatten(1))
        return kv_BLX.view(*kv_BLX.shape[:2], *kv_MSGE.shape[1:]).permute(2, 0, 3, 1, 4)

    def _spread_heads(self, x_MHE: Tensor) -> Tensor:
        x_BLX = self._packing.spread(x_MHE.flatten(1))
        return x_BLX.view(*x_BLX.shape[:2], *x_MHE.shape[1:]).transpose(1, 2)


def _has_norms(attention: Any) -> bool:
    """Whether queries and keys are normalised head by head."""
    return hasattr(attention, "q_norm")


def _per_layer(past: Cache | None, layers: int) -> list[Tensor | None]:
    # unbind, not indexing: its backward is one stack instead of a full-size tensor per layer.
    return [None] * layers if past is None else list(past[0].unbind(0))
