"""A masked language model of BERT's architecture as a Denoiser, for training and for inference.

The forward is our own over the stock module's layers, because `BertForMaskedLM` has no read-only
cache and computes logits for every position. Shapes: B rows, L new positions, N cached, K = N + L,
H heads, E head size, D = H * E, M picked positions, V vocabulary; a layer's cache is [2, B, H, N, E].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention
from transformers import BertConfig, BertForMaskedLM
from transformers.models.bert.modeling_bert import BertLayer

from raydiff.models.denoiser import Cache
from raydiff.models.packing import Packing
from raydiff.spec import ModelSpec


def build(config: Mapping[str, Any]) -> nn.Module:
    """The module of a stock config, on torch's default device."""
    module: nn.Module = BertForMaskedLM(BertConfig.from_dict(dict(config)))
    return module


def wrap(module: nn.Module, spec: ModelSpec) -> BertDenoiser:
    """The denoiser that runs a loaded module."""
    assert isinstance(module, BertForMaskedLM)
    return BertDenoiser(module, spec)


class BertDenoiser:
    """Runs a `BertForMaskedLM`; implements `raydiff.models.denoiser.Denoiser`."""

    def __init__(self, model: BertForMaskedLM, spec: ModelSpec, fuse: bool = True) -> None:
        """`fuse` copies the query, key and value weights into one matrix: for inference, as
        training moves them.
        """
        self.model = model
        self.spec = spec
        self._layers: list[BertLayer] = list(model.bert.encoder.layer)
        self._fused = [_fuse_qkv(layer) for layer in self._layers] if fuse else None
        self._word_embeddings: Tensor = model.bert.embeddings.word_embeddings.weight
        config = model.config
        self._heads: int = config.num_attention_heads
        self._width: int = config.hidden_size
        self._scale = (self._width // self._heads) ** -0.5

    @property
    def device(self) -> torch.device:
        return self._word_embeddings.device

    @property
    def dtype(self) -> torch.dtype:
        return self._word_embeddings.dtype

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
        """See `Denoiser.forward`. The token type is 1 from `spec.target_position` on, 0 before."""
        packing = Packing(tokens_BL.shape[0], tokens_BL.shape[1], live_BL)
        hidden_MD = self._embed(packing.pack(tokens_BL), packing.pack(positions_BL))
        hidden_MD, kept = self._run_layers(hidden_MD, packing, mask_BLK, past, len(self._layers))
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
        last = len(self._layers) - 1
        hidden_MD = self._embed(packing.pack(tokens_BL), packing.pack(positions_BL))
        hidden_MD, kept = self._run_layers(hidden_MD, packing, mask_BLK, past, last)
        return (torch.stack([*kept, self._project_kv(last, hidden_MD, packing)]),)

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """See `Denoiser.logits`."""
        logits_MV: Tensor = self.model.cls(hidden_MD)
        return logits_MV

    def soft(self, logits_MV: Tensor) -> Tensor:
        """See `Denoiser.soft`."""
        raise NotImplementedError("A masked language model takes no self-conditioning.")

    def _embed(self, tokens_M: Tensor, positions_M: Tensor) -> Tensor:
        table = self.model.bert.embeddings
        target = self.spec.target_position
        types_M = (
            torch.zeros_like(positions_M) if target is None else (positions_M >= target).long()
        )
        hidden_MD = table.word_embeddings(tokens_M) + table.position_embeddings(positions_M)
        normed_MD: Tensor = table.LayerNorm(hidden_MD + table.token_type_embeddings(types_M))
        return normed_MD

    def _run_layers(
        self,
        hidden_MD: Tensor,
        packing: Packing,
        mask_BLK: Tensor | None,
        past: Cache | None,
        count: int,
    ) -> tuple[Tensor, list[Tensor]]:
        """The first `count` layers; returns the hidden states and each layer's new cache."""
        bias_B1LK = self._bias(mask_BLK)
        kept: list[Tensor] = []
        for index, layer_past in enumerate(_per_layer(past, len(self._layers))[:count]):
            q_BHLE, kv = self._project(index, hidden_MD, packing)
            kept.append(kv)
            context_BLD = self._attend(q_BHLE, kv, layer_past, bias_B1LK)
            hidden_MD = self._finish_layer(index, hidden_MD, packing.pack(context_BLD))
        return hidden_MD, kept

    def _bias(self, mask_BLK: Tensor | None) -> Tensor | None:
        """Additive mask; a large finite value, so that a row that may attend to nothing gives no
        NaN.
        """
        if mask_BLK is None:
            return None
        bias_BLK = torch.zeros(mask_BLK.shape, dtype=self.dtype, device=mask_BLK.device)
        return bias_BLK.masked_fill_(~mask_BLK, torch.finfo(self.dtype).min / 2).unsqueeze(1)

    def _project(self, index: int, hidden_MD: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """Queries [B, H, L, E] and the new keys and values [2, B, H, L, E]."""
        weight, bias = self._qkv(index)
        qkv_3BHLE = self._split_heads(packing.spread(linear(hidden_MD, weight, bias)), parts=3)
        return qkv_3BHLE[0], qkv_3BHLE[1:]

    def _project_kv(self, index: int, hidden_MD: Tensor, packing: Packing) -> Tensor:
        weight, bias = self._qkv(index)
        width = self._width
        kv_MX = linear(hidden_MD, weight[width:], bias[width:])
        return self._split_heads(packing.spread(kv_MX), parts=2)

    def _qkv(self, index: int) -> tuple[Tensor, Tensor]:
        return self._fused[index] if self._fused is not None else _fuse_qkv(self._layers[index])

    def _split_heads(self, projected_BLX: Tensor, parts: int) -> Tensor:
        rows, length, _ = projected_BLX.shape
        split = projected_BLX.view(rows, length, parts, self._heads, self._width // self._heads)
        return split.permute(2, 0, 3, 1, 4)

    def _finish_layer(self, index: int, hidden_MD: Tensor, context_MD: Tensor) -> Tensor:
        layer = self._layers[index]
        attended_MD = layer.attention.output(context_MD, hidden_MD)
        output_MD: Tensor = layer.output(layer.intermediate(attended_MD), attended_MD)
        return output_MD

    def _attend(
        self, q_BHLE: Tensor, kv: Tensor, past: Tensor | None, bias_B1LK: Tensor | None
    ) -> Tensor:
        """Attention of the new positions over cached and new ones: [B, L, D]."""
        if q_BHLE.device.type == "cpu":
            context_BHLE = self._attend_plainly(q_BHLE, kv, past, bias_B1LK)
        else:
            k_BHKE, v_BHKE = kv if past is None else torch.cat([past, kv], dim=3)
            context_BHLE = scaled_dot_product_attention(q_BHLE, k_BHKE, v_BHKE, bias_B1LK)
        return context_BHLE.transpose(1, 2).flatten(2)

    def _attend_plainly(
        self, q_BHLE: Tensor, kv: Tensor, past: Tensor | None, bias_B1LK: Tensor | None
    ) -> Tensor:
        # On a CPU, with many narrow heads, plain products beat the fused kernel: 1.3x forward and
        # 3 to 6 times with backward. Two products a side save copying the cache.
        q_BHLE = q_BHLE * self._scale
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


def _fuse_qkv(layer: BertLayer) -> tuple[Tensor, Tensor]:
    """One [3D, D] weight and [3D] bias for queries, keys and values."""
    attention = layer.attention.self
    parts = (attention.query, attention.key, attention.value)
    return torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])


def _per_layer(past: Cache | None, layers: int) -> list[Tensor | None]:
    # unbind, not indexing: its backward is one stack instead of a full-size tensor per layer.
    return [None] * layers if past is None else list(past[0].unbind(0))
