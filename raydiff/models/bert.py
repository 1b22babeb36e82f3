"""A masked language model of BERT's or RoBERTa's architecture as a Denoiser, for training and for
inference.

The forward is our own over the stock module's layers, because the stock one has no read-only cache
and computes logits for every position. Shapes: B rows, L new positions, N cached, K = N + L,
H heads, E head size, D = H * E, M picked positions, V vocabulary; a layer's cache is
[2, B, H, N, E].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM
from transformers.models.bert.modeling_bert import BertLayer

from raydiff.models.attention import attend, mask_bias
from raydiff.models.denoiser import Cache
from raydiff.models.packing import Packing
from raydiff.spec import ModelSpec

MaskedLM: TypeAlias = BertForMaskedLM | RobertaForMaskedLM


@dataclass(frozen=True)
class Layout:
    """How the masked language models that share BERT's layers differ."""

    config: Any
    module: Any
    body: str
    """Attribute that holds embeddings and layers."""
    head: str
    """Attribute that turns hidden states into logits."""
    first_after_padding: bool = False
    """Whether position 0 is row `pad_token_id + 1` of the position embeddings, not row 0."""


LAYOUTS = {
    "bert": Layout(BertConfig, BertForMaskedLM, body="bert", head="cls"),
    "roberta": Layout(
        RobertaConfig, RobertaForMaskedLM, body="roberta", head="lm_head", first_after_padding=True
    ),
}
"""By `model_type`."""


def build(config: Mapping[str, Any]) -> nn.Module:
    """The transformers module of a config, on torch's default device."""
    layout = LAYOUTS[config["model_type"]]
    module: nn.Module = layout.module(layout.config.from_dict(dict(config)))
    return module


def wrap(module: nn.Module, spec: ModelSpec) -> BertDenoiser:
    """The denoiser that runs a module whose weights are in place."""
    assert isinstance(module, BertForMaskedLM | RobertaForMaskedLM)
    return BertDenoiser(module, spec)


class BertDenoiser:
    """Runs a module of one of `LAYOUTS`; implements `raydiff.models.denoiser.Denoiser`."""

    def __init__(self, model: MaskedLM, spec: ModelSpec, fuse: bool = True) -> None:
        """`fuse` makes the query, key and value weights parts of one matrix: for inference, as
        training moves them.
        """
        self.model = model
        self.spec = spec
        config = model.config
        layout = LAYOUTS[config.model_type]
        body = getattr(model, layout.body)
        self._embeddings = body.embeddings
        self._head = getattr(model, layout.head)
        self._layers: list[BertLayer] = list(body.encoder.layer)
        self._fused = [_fuse_in_place(layer) for layer in self._layers] if fuse else None
        self._word_embeddings: Tensor = body.embeddings.word_embeddings.weight
        self._first_position: int = config.pad_token_id + 1 if layout.first_after_padding else 0
        self._heads: int = config.num_attention_heads
        self._width: int = config.hidden_size

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
        logits_MV: Tensor = self._head(hidden_MD)
        return logits_MV

    def _embed(self, tokens_M: Tensor, positions_M: Tensor) -> Tensor:
        table = self._embeddings
        target = self.spec.target_position
        types_M = (
            torch.zeros_like(positions_M) if target is None else (positions_M >= target).long()
        )
        places_MD = table.position_embeddings(positions_M + self._first_position)
        hidden_MD = table.word_embeddings(tokens_M) + places_MD
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
        bias_B1LK = mask_bias(mask_BLK, self.dtype)
        kept: list[Tensor] = []
        for index, layer_past in enumerate(_per_layer(past, len(self._layers))[:count]):
            q_BHLE, kv = self._project(index, hidden_MD, packing)
            kept.append(kv)
            context_BLD = attend(q_BHLE, kv, layer_past, bias_B1LK)
            hidden_MD = self._finish_layer(index, hidden_MD, packing.pack(context_BLD))
        return hidden_MD, kept

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


def _fuse_in_place(layer: BertLayer) -> tuple[Tensor, Tensor]:
    """`_fuse_qkv`, of which the layer's own weights become views, so that they exist once."""
    attention = layer.attention.self
    with torch.no_grad():
        weight, bias = _fuse_qkv(layer)
        for i, part in enumerate((attention.query, attention.key, attention.value)):
            rows = slice(i * weight.shape[1], (i + 1) * weight.shape[1])
            part.weight = nn.Parameter(weight[rows], requires_grad=False)
            part.bias = nn.Parameter(bias[rows], requires_grad=False)
    return weight, bias


def _fuse_qkv(layer: BertLayer) -> tuple[Tensor, Tensor]:
    """One [3D, D] weight and [3D] bias for queries, keys and values."""
    attention = layer.attention.self
    parts = (attention.query, attention.key, attention.value)
    return torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])


def _per_layer(past: Cache | None, layers: int) -> list[Tensor | None]:
    # unbind, not indexing: its backward is one stack instead of a full-size tensor per layer.
    return [None] * layers if past is None else list(past[0].unbind(0))
