"""ModernBERT (Warner et al. 2024) as a Denoiser: pre-norm layers with gated feed-forward parts and
rotary positions, most of which attend only to neighbours.

Shapes: B rows, L new positions, N cached, K = N + L, M live positions, D hidden size, H heads,
E head size, V vocabulary; a layer's cache is [2, B, H, N, E].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import ModernBertConfig, ModernBertForMaskedLM

from raydiff.models.attention import attend, mask_bias
from raydiff.models.denoiser import Cache
from raydiff.models.packing import Packing
from raydiff.models.rotary import Rotary, rotate
from raydiff.spec import ModelSpec


def build(config: Mapping[str, Any]) -> nn.Module:
    """The transformers module of a config, on torch's default device."""
    module: nn.Module = ModernBertForMaskedLM(ModernBertConfig.from_dict(dict(config)))
    return module


def wrap(module: nn.Module, spec: ModelSpec) -> ModernBertDenoiser:
    """The denoiser that runs a module whose weights are in place."""
    assert isinstance(module, ModernBertForMaskedLM)
    return ModernBertDenoiser(module, spec)


@dataclass(frozen=True)
class _View:
    """What the layers of one type share in a forward."""

    bias: Tensor | None
    """Additive mask [B, 1, L, K]."""
    rotation: tuple[Tensor, Tensor]


class ModernBertDenoiser:
    """Runs a `ModernBertForMaskedLM`; implements `raydiff.models.denoiser.Denoiser`."""

    def __init__(self, model: ModernBertForMaskedLM, spec: ModelSpec) -> None:
        self.model = model
        self.spec = spec
        config = model.config
        self._embeddings: Tensor = model.model.embeddings.tok_embeddings.weight
        self._layers: list[Any] = list(model.model.layers)
        self._heads: int = config.num_attention_heads
        self._reach: int = config.sliding_window
        size = config.hidden_size // config.num_attention_heads
        self._rotary = {
            kind: _rotary(config.rope_parameters[kind]["rope_theta"], size, self.device)
            for kind in sorted(set(config.layer_types))
        }

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
        views = self._views(positions_BL, mask_BLK, past, packing)
        hidden_MD = self.model.model.embeddings(packing.pack(tokens_BL))
        layer_pasts = [None] * len(self._layers) if past is None else past[0].unbind(0)
        kept: list[Tensor] = []
        for layer, layer_past in zip(self._layers, layer_pasts, strict=True):
            view = views[layer.attention_type]
            q_BHLE, kv = self._project(layer, hidden_MD, packing, view)
            kept.append(kv)
            context_MD = packing.pack(attend(q_BHLE, kv, layer_past, view.bias))
            hidden_MD = hidden_MD + layer.attn.Wo(context_MD)
            hidden_MD = hidden_MD + layer.mlp(layer.mlp_norm(hidden_MD))
        hidden_BLD = packing.spread(self.model.model.final_norm(hidden_MD))
        return hidden_BLD, (torch.stack(kept),) if want_kv else None

    def encode(
        self,
        tokens_BL: Tensor,
        positions_BL: Tensor,
        mask_BLK: Tensor | None,
        past: Cache | None,
        live_BL: Tensor | None = None,
    ) -> Cache:
        """See `Denoiser.encode`."""
        _, kv = self.forward(tokens_BL, positions_BL, mask_BLK, past, True, live_BL)
        assert kv is not None
        return kv

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """See `Denoiser.logits`."""
        logits_MV: Tensor = self.model.decoder(self.model.head(hidden_MD))
        return logits_MV

    def _views(
        self, positions_BL: Tensor, mask_BLK: Tensor | None, past: Cache | None, packing: Packing
    ) -> dict[str, _View]:
        masks = {
            "full_attention": mask_BLK,
            "sliding_attention": self._near(positions_BL, mask_BLK, past),
        }
        positions_M = packing.pack(positions_BL)
        return {
            kind: _View(mask_bias(masks[kind], self.dtype), rotary(positions_M, self.dtype))
            for kind, rotary in self._rotary.items()
        }

    def _near(self, positions_BL: Tensor, mask_BLK: Tensor | None, past: Cache | None) -> Tensor:
        """The mask without keys farther than the local layers' reach, on either side."""
        rows, cached = positions_BL.shape[0], 0 if past is None else past[0].shape[4]
        past_BN = torch.arange(cached, device=positions_BL.device).expand(rows, -1)
        keys_BK = torch.cat([past_BN, positions_BL], dim=1)
        near_BLK = (positions_BL[:, :, None] - keys_BK[:, None, :]).abs() <= self._reach
        return near_BLK if mask_BLK is None else near_BLK & mask_BLK

    def _project(
        self, layer: Any, hidden_MD: Tensor, packing: Packing, view: _View
    ) -> tuple[Tensor, Tensor]:
        """Queries [B, H, L, E] and the new keys and values [2, B, H, L, E], both rotated."""
        qkv_MX = layer.attn.Wqkv(layer.attn_norm(hidden_MD))
        q_MHE, k_MHE, v_MHE = qkv_MX.view(len(qkv_MX), 3, self._heads, -1).unbind(1)
        turned = [rotate(q_MHE, view.rotation), rotate(k_MHE, view.rotation), v_MHE]
        qkv_BLX = packing.spread(torch.stack(turned, dim=1).flatten(1))
        qkv_BL3HE = qkv_BLX.view(*qkv_BLX.shape[:2], 3, self._heads, -1)
        qkv_3BHLE = qkv_BL3HE.permute(2, 0, 3, 1, 4)
        return qkv_3BHLE[0], qkv_3BHLE[1:]


def _rotary(theta: float, head_size: int, device: torch.device) -> Rotary:
    """The rotation of base `theta` over whole heads (Su et al. 2021)."""
    with torch.device("cpu"):
        powers_F = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
    return Rotary(theta**-powers_F, 1.0, device)
