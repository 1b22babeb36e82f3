"""DiffusionGemma as a Denoiser: an encoder that reads causally and writes the cache, a decoder that
reads it and denoises a canvas in both directions, with the same weights but for a scalar per layer.

The forward is our own over the stock decoder's layers: the stock one takes its positions and its
cache for rows of one length, and its experts route padding. Text only. Shapes: B rows, L new
positions, N cached, K = N + L, M live or picked positions, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear
from transformers.models.diffusion_gemma.configuration_diffusion_gemma import DiffusionGemmaConfig
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import (
    DiffusionGemmaDecoderModel,
    DiffusionGemmaTextRotaryEmbedding,
)

from raydiff.models.denoiser import Cache
from raydiff.models.gemma_layer import GemmaLayer, Rotation, norm
from raydiff.models.packing import Packing
from raydiff.models.rotary import Rotary
from raydiff.models.sliding import Reach, sliding_reach, whole_reach
from raydiff.spec import ModelSpec

SLIDING, FULL = "sliding_attention", "full_attention"
SOFT_BYTES = 2**30
"""Most memory that `soft` takes for probabilities at once."""


def build(config: Mapping[str, Any]) -> nn.Module:
    """The module that holds the weights of a stock config, on torch's default device."""
    return DiffusionGemmaWeights(DiffusionGemmaConfig(**config))


def wrap(module: nn.Module, spec: ModelSpec) -> DiffusionGemmaDenoiser:
    """The denoiser that runs a module whose weights are in place."""
    assert isinstance(module, DiffusionGemmaWeights)
    return DiffusionGemmaDenoiser(module, spec)


class DiffusionGemmaWeights(nn.Module):
    """The text weights under their published keys: the decoder, and the encoder's layer scalars."""

    def __init__(self, config: DiffusionGemmaConfig) -> None:
        super().__init__()
        self.config = config
        decoder: Any = DiffusionGemmaDecoderModel(config)
        # a stock model sets this of all its parts, a decoder on its own does not
        chosen = decoder.get_correct_experts_implementation(None)
        config.get_text_config()._experts_implementation = chosen
        # Worked out from the config instead, wherever the module was made.
        del decoder.rotary_emb, decoder.embed_tokens.embed_scale
        scalars = nn.ModuleList(_Scalar() for _ in decoder.layers)
        language_model = nn.ModuleDict({"layers": scalars})
        encoder = nn.ModuleDict({"language_model": language_model})
        self.model = nn.ModuleDict({"decoder": decoder, "encoder": encoder})

    @property
    def decoder(self) -> Any:
        """The stock decoder, without its rotary module."""
        return self.model["decoder"]

    def encoder_scalars(self) -> list[Tensor]:
        """What scales each layer's output when it encodes."""
        folder = "model.encoder.language_model.layers"
        count = len(self.decoder.layers)
        return [self.get_buffer(f"{folder}.{index}.layer_scalar") for index in range(count)]


class _Scalar(nn.Module):
    layer_scalar: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("layer_scalar", torch.ones(1))


class DiffusionGemmaDenoiser:
    """Runs DiffusionGemma; implements `raydiff.models.denoiser.Denoiser`."""

    def __init__(self, module: DiffusionGemmaWeights, spec: ModelSpec) -> None:
        self.module = module
        self.spec = spec
        text: Any = module.config.text_config
        self._decoder = module.decoder
        self._layers = [GemmaLayer(layer) for layer in self._decoder.layers]
        self._decoder_scalars: list[Tensor] = [x.layer_scalar for x in self._decoder.layers]
        self._encoder_scalars = module.encoder_scalars()
        self._embeddings: Tensor = self._decoder.embed_tokens.weight
        self._embedding_scale = float(torch.tensor(text.hidden_size**0.5).to(self.dtype))
        self._window: int = text.sliding_window
        self._softcap: float = text.final_logit_softcapping
        self._places = _places([layer.kind for layer in self._layers])
        self._rotary = _rotaries(text, self.device)

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
        """See `Denoiser.forward`. A row's canvas begins at its smallest live position; in layers
        with a sliding window of W all of the canvas reads the W - 1 positions before it.

        Raises:
            ValueError: `want_kv`, because only `encode` gives keys and values that may be cached.
        """
        if want_kv:
            raise ValueError("want_kv: expected False: DiffusionGemma's cache comes from encode.")
        packing = Packing(tokens_BL.shape[0], tokens_BL.shape[1], live_BL)
        oldest_BL = self._canvas_start(positions_BL, live_BL) - (self._window - 1)
        run = self._run(packing, positions_BL, oldest_BL, mask_BLK, past, span=1)
        hidden_MD = self._embed(packing.pack(tokens_BL))
        hidden_MD = self._condition(hidden_MD, None if soft_BLD is None else packing.pack(soft_BLD))
        for index, scalar in enumerate(self._decoder_scalars):
            hidden_MD, _ = run.layer(index, hidden_MD, scalar)
        return packing.spread(norm(self._decoder.norm, hidden_MD)), None

    def encode(
        self,
        tokens_BL: Tensor,
        positions_BL: Tensor,
        mask_BLK: Tensor | None,
        past: Cache | None,
        live_BL: Tensor | None = None,
    ) -> Cache:
        """See `Denoiser.encode`: the encoder's pass; the mask must be causal."""
        packing = Packing(tokens_BL.shape[0], tokens_BL.shape[1], live_BL)
        oldest_BL, span = positions_BL - (self._window - 1), tokens_BL.shape[1]
        run = self._run(packing, positions_BL, oldest_BL, mask_BLK, past, span)
        hidden_MD = self._embed(packing.pack(tokens_BL))
        kept: list[list[Tensor]] = [[] for _ in self.spec.kv]
        last = len(self._layers) - 1
        for index, scalar in enumerate(self._encoder_scalars[:last]):
            hidden_MD, kv = run.layer(index, hidden_MD, scalar)
            kept[self._places[index][0]].append(kv)
        kept[self._places[last][0]].append(run.keys_values(last, hidden_MD))
        return tuple(torch.stack(group) for group in kept)

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """See `Denoiser.logits`: fp32, softly capped."""
        logits_MV = linear(hidden_MD, self._embeddings).float()
        return logits_MV.div_(self._softcap).tanh_().mul_(self._softcap)

    def soft(self, logits_MV: Tensor) -> Tensor:
        """See `Denoiser.soft`. The logits are those that were sampled from: divided by the step's
        temperature.
        """
        at_once = max(1, SOFT_BYTES // (4 * logits_MV.shape[1]))
        parts = [self._expected(part_MV) for part_MV in torch.split(logits_MV, at_once)]
        return torch.cat(parts)

    def _expected(self, logits_MV: Tensor) -> Tensor:
        probabilities_MV = logits_MV.softmax(dim=-1, dtype=torch.float32).to(self.dtype)
        return torch.matmul(probabilities_MV, self._embeddings) * self._embedding_scale

    def _embed(self, tokens_M: Tensor) -> Tensor:
        return embedding(tokens_M, self._embeddings) * self._embedding_scale

    def _condition(self, embedded_MD: Tensor, soft_MD: Tensor | None) -> Tensor:
        conditioning = self._decoder.self_conditioning
        if soft_MD is None:  # of zeros the signal is zero
            return norm(conditioning.post_norm, embedded_MD)
        conditioned_MD: Tensor = conditioning(embedded_MD, soft_MD)
        return conditioned_MD

    def _canvas_start(self, positions_BL: Tensor, live_BL: Tensor | None) -> Tensor:
        """[B, L], the same all over a row; beyond everything where a row has nothing live."""
        if live_BL is not None:
            beyond = torch.iinfo(positions_BL.dtype).max
            positions_BL = positions_BL.masked_fill(~live_BL, beyond)
        return positions_BL.min(dim=1, keepdim=True).values.expand_as(positions_BL)

    def _run(
        self,
        packing: Packing,
        positions_BL: Tensor,
        oldest_BL: Tensor,
        mask_BLK: Tensor | None,
        past: Cache | None,
        span: int,
    ) -> _Run:
        """`span` new positions, from a row's first on, limit differently what is in reach."""
        cached = 0 if past is None else past[0].shape[4]
        whole = whole_reach(mask_BLK, self.dtype)
        near = whole
        if cached + span > self._window:
            near = sliding_reach(mask_BLK, positions_BL, oldest_BL, cached, self.dtype)
        positions_M = packing.pack(positions_BL)
        rotations = {kind: turn(positions_M, self.dtype) for kind, turn in self._rotary.items()}
        pasts = [None if past is None else past[group][at] for group, at in self._places]
        return _Run(self._layers, packing, rotations, {FULL: whole, SLIDING: near}, pasts)


class _Run:
    """What the layers of one forward share."""

    def __init__(
        self,
        layers: list[GemmaLayer],
        packing: Packing,
        rotations: dict[str, Rotation],
        reaches: dict[str, Reach],
        pasts: list[Tensor | None],
    ) -> None:
        self._layers, self._packing = layers, packing
        self._rotations, self._reaches, self._pasts = rotations, reaches, pasts

    def layer(self, index: int, hidden_MD: Tensor, scalar: Tensor) -> tuple[Tensor, Tensor]:
        """One whole layer: hidden states and the layer's new keys and values."""
        layer, kind = self._layers[index], self._layers[index].kind
        rotation, reach = self._rotations[kind], self._reaches[kind]
        return layer.run(hidden_MD, self._packing, rotation, reach, self._pasts[index], scalar)

    def keys_values(self, index: int, hidden_MD: Tensor) -> Tensor:
        """The keys and values alone."""
        layer = self._layers[index]
        return layer.keys_values(hidden_MD, self._packing, self._rotations[layer.kind])


def _places(kinds: list[str]) -> list[tuple[int, int]]:
    """Where each layer's keys and values are: group of `ModelSpec.kv`, index within it."""
    groups = [kind for kind in (SLIDING, FULL) if kind in kinds]
    return [(groups.index(kind), kinds[:index].count(kind)) for index, kind in enumerate(kinds)]


def _rotaries(text: Any, device: torch.device) -> dict[str, Rotary]:
    with torch.device("cpu"):
        stock: Any = DiffusionGemmaTextRotaryEmbedding(text)
    return {
        kind: Rotary(
            getattr(stock, f"{kind}_inv_freq"), getattr(stock, f"{kind}_attention_scaling"), device
        )
        for kind in stock.layer_types
    }
