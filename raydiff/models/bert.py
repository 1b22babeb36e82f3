"""A masked language model of BERT's architecture as a Denoiser, for training and for inference.

The forward is our own over the stock module's layers, because `BertForMaskedLM` has no read-only
cache and computes logits for every position. Shapes: B rows, L new positions, N cached, K = N + L,
H heads, E head size, D = H * E, M picked positions, V vocabulary; a cache is [layers, 2, B, H, N,
E].
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention
from transformers import BertForMaskedLM
from transformers.models.bert.modeling_bert import BertLayer

from raydiff.spec import ModelSpec


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
        self._scale = spec.head_dim**-0.5

    @property
    def device(self) -> torch.device:
        return self._word_embeddings.device

    @property
    def dtype(self) -> torch.dtype:
        return self._word_embeddings.dtype

    @property
    def cache_bytes_per_position(self) -> int:
        return self.spec.layers * 2 * self.spec.hidden_size * self.dtype.itemsize

    def forward(
        self,
        tokens_BL: Tensor,
        positions_BL: Tensor,
        mask_BLK: Tensor | None,
        past: Tensor | None,
        want_kv: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """See `Denoiser.forward`. The token type is 1 from `spec.target_position` on, 0 before."""
        hidden_BLD = self._embed(tokens_BL, positions_BL)
        bias_B1LK = self._bias(mask_BLK)
        pasts = _per_layer(past, len(self._layers))
        kept: list[Tensor] = []
        for index in range(len(self._layers)):
            q_BHLE, kv = self._project(index, hidden_BLD)
            if want_kv:
                kept.append(kv)
            hidden_BLD = self._finish_layer(
                index, hidden_BLD, q_BHLE, _append(pasts[index], kv), bias_B1LK
            )
        return hidden_BLD, torch.stack(kept) if want_kv else None

    def encode(
        self, tokens_BL: Tensor, positions_BL: Tensor, mask_BLK: Tensor | None, past: Tensor | None
    ) -> Tensor:
        """See `Denoiser.encode`."""
        hidden_BLD = self._embed(tokens_BL, positions_BL)
        bias_B1LK = self._bias(mask_BLK)
        pasts = _per_layer(past, len(self._layers))
        kept: list[Tensor] = []
        last = len(self._layers) - 1
        for index in range(last):
            q_BHLE, kv = self._project(index, hidden_BLD)
            kept.append(kv)
            hidden_BLD = self._finish_layer(
                index, hidden_BLD, q_BHLE, _append(pasts[index], kv), bias_B1LK
            )
        kept.append(self._project_kv(last, hidden_BLD))
        return torch.stack(kept)

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """See `Denoiser.logits`."""
        logits_MV: Tensor = self.model.cls(hidden_MD)
        return logits_MV

    def _embed(self, tokens_BL: Tensor, positions_BL: Tensor) -> Tensor:
        table = self.model.bert.embeddings
        target = self.spec.target_position
        types_BL = (
            torch.zeros_like(positions_BL) if target is None else (positions_BL >= target).long()
        )
        hidden_BLD = table.word_embeddings(tokens_BL) + table.position_embeddings(positions_BL)
        normed_BLD: Tensor = table.LayerNorm(hidden_BLD + table.token_type_embeddings(types_BL))
        return normed_BLD

    def _bias(self, mask_BLK: Tensor | None) -> Tensor | None:
        """Additive mask; a large finite value, so that a row that may attend to nothing gives no
        NaN.
        """
        if mask_BLK is None:
            return None
        bias_BLK = torch.zeros(mask_BLK.shape, dtype=self.dtype, device=mask_BLK.device)
        return bias_BLK.masked_fill_(~mask_BLK, torch.finfo(self.dtype).min / 2).unsqueeze(1)

    def _project(self, index: int, hidden_BLD: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [B, H, L, E] and the new keys and values [2, B, H, L, E]."""
        weight, bias = (
            self._fused[index] if self._fused is not None else _fuse_qkv(self._layers[index])
        )
        qkv_3BHLE = self._split_heads(linear(hidden_BLD, weight, bias), parts=3)
        return qkv_3BHLE[0], qkv_3BHLE[1:]

    def _project_kv(self, index: int, hidden_BLD: Tensor) -> Tensor:
        weight, bias = (
            self._fused[index] if self._fused is not None else _fuse_qkv(self._layers[index])
        )
        width = self.spec.hidden_size
        return self._split_heads(linear(hidden_BLD, weight[width:], bias[width:]), parts=2)

    def _split_heads(self, projected_BLX: Tensor, parts: int) -> Tensor:
        rows, length, _ = projected_BLX.shape
        split = projected_BLX.view(rows, length, parts, self.spec.heads, self.spec.head_dim)
        return split.permute(2, 0, 3, 1, 4)

    def _finish_layer(
        self, index: int, hidden_BLD: Tensor, q_BHLE: Tensor, kv: Tensor, bias_B1LK: Tensor | None
    ) -> Tensor:
        layer = self._layers[index]
        context_BHLE = self._attend(q_BHLE, kv[0], kv[1], bias_B1LK)
        context_BLD = context_BHLE.transpose(1, 2).reshape(hidden_BLD.shape)
        attended_BLD = layer.attention.output(context_BLD, hidden_BLD)
        output_BLD: Tensor = layer.output(layer.intermediate(attended_BLD), attended_BLD)
        return output_BLD

    def _attend(
        self, q_BHLE: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, bias_B1LK: Tensor | None
    ) -> Tensor:
        if q_BHLE.device.type != "cpu":
            return scaled_dot_product_attention(q_BHLE, k_BHKE, v_BHKE, attn_mask=bias_B1LK)
        # On a CPU, with many narrow heads, plain products beat the fused kernel: 1.3x forward and
        # 3 to 6 times with backward.
        scores_BHLK = torch.matmul(q_BHLE * self._scale, k_BHKE.transpose(-1, -2))
        if bias_B1LK is not None:
            scores_BHLK = scores_BHLK + bias_B1LK
        return torch.matmul(torch.softmax(scores_BHLK, dim=-1), v_BHKE)


def _fuse_qkv(layer: BertLayer) -> tuple[Tensor, Tensor]:
    """One [3D, D] weight and [3D] bias for queries, keys and values."""
    attention = layer.attention.self
    parts = (attention.query, attention.key, attention.value)
    return torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])


def _per_layer(past: Tensor | None, layers: int) -> list[Tensor | None]:
    # unbind, not indexing: its backward is one stack instead of a full-size tensor per layer.
    return [None] * layers if past is None else list(past.unbind(0))


def _append(past: Tensor | None, kv: Tensor) -> Tensor:
    return kv if past is None else torch.cat([past, kv], dim=3)
