"""Networks over noised embeddings: DiffuSeq's layout and Diffusion-LM's with cross-attention.

Both wrap BERT's layers in projections from and to the embedding's width and add a timestep
embedding (Gong et al. 2023, DiffuSeq; Li et al. 2022, Diffusion-LM). Parameters bear the published
names. Shapes: B rows, P prompt positions, L noised positions, K keys, E embedding width, D hidden
size, T timestep features, V vocabulary, M picked positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertAttention, BertEncoder, BertLayer

from raydiff.models.attention import attend, mask_bias
from raydiff.spec import ModelSpec

TIME_SCALE = 1000.0
"""Timesteps as published: 0 to 1000, whatever the number of steps (rescale_timesteps)."""
MAX_PERIOD = 10000.0


class EmbeddingNetwork(nn.Module):
    """The parameters. `cross_attention` in the config chooses Diffusion-LM's layout."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        vocab, width, hidden = config["vocab_size"], config["embedding_size"], config["hidden_size"]
        features = self.time_size = int(config["time_size"])
        cross: bool = config["cross_attention"]
        self.heads: int = config["num_attention_heads"]
        self.prompt_positions: bool = config["prompt_positions"]
        self.word_embedding = nn.Embedding(vocab, width)
        self.lm_head = _HeadBias(vocab)
        self.time_embed = nn.Sequential(
            nn.Linear(features, 4 * features), nn.SiLU(), nn.Linear(4 * features, hidden)
        )
        same = width == hidden and not cross
        self.input_up_proj = nn.Identity() if same else _projection(width, hidden, hidden)
        self.output_down_proj = nn.Identity() if same else _projection(hidden, hidden, width)
        self.position_embeddings = nn.Embedding(config["max_position_embeddings"], hidden)
        self.LayerNorm = nn.LayerNorm(hidden, eps=config["layer_norm_eps"])
        self.input_transformers = BertEncoder(_bert_config(config, cross))
        if cross:
            self.encoder_emb = nn.Embedding(vocab, hidden)
            self.encoder = BertEncoder(_bert_config(config, cross=False))


class _HeadBias(nn.Module):
    """What is left of the head, whose weight is the word embeddings'."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocab))


def _projection(inner: int, hidden: int, outer: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inner, hidden), nn.Tanh(), nn.Linear(hidden, outer))


def _bert_config(config: Mapping[str, Any], cross: bool) -> BertConfig:
    layers = config["num_hidden_layers"] if cross else config["encoder_layers"]
    if not config["cross_attention"]:
        layers = config["num_hidden_layers"]
    return BertConfig(
        hidden_size=config["hidden_size"],
        num_hidden_layers=layers,
        num_attention_heads=config["num_attention_heads"],
        intermediate_size=config["intermediate_size"],
        hidden_act=config["hidden_act"],
        layer_norm_eps=config["layer_norm_eps"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        is_decoder=cross,
        add_cross_attention=cross,
    )


def build(config: Mapping[str, Any]) -> EmbeddingNetwork:
    """The module of a config as `raydiff.families.embedding` normalises it."""
    return EmbeddingNetwork(config)


def wrap(module: nn.Module, spec: ModelSpec) -> EmbeddingDenoiser:
    """The denoiser of a module whose weights are in place."""
    assert isinstance(module, EmbeddingNetwork)
    return EmbeddingDenoiser(module, spec)


class EmbeddingDenoiser:
    """Runs an `EmbeddingNetwork`; implements `raydiff.models.denoiser.LatentDenoiser`.

    The forward is our own: padding is masked everywhere, and positions count what is live, so that
    a row gives the same alone and in any batch.
    """

    def __init__(self, model: EmbeddingNetwork, spec: ModelSpec) -> None:
        self.model = model
        self.spec = spec
        self._cross = hasattr(model, "encoder")

    @property
    def device(self) -> torch.device:
        return self.model.word_embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.word_embedding.weight.dtype

    def table(self) -> Tensor:
        """See `LatentDenoiser.table`."""
        return self.model.word_embedding.weight

    def embed(self, tokens_BL: Tensor) -> Tensor:
        """See `LatentDenoiser.embed`."""
        return embedding(tokens_BL, self.table())

    def logits(self, latents_ME: Tensor, table_VE: Tensor | None = None) -> Tensor:
        """See `LatentDenoiser.logits`. `table_VE` stands in for the model's own embeddings."""
        table_VE = self.table() if table_VE is None else table_VE
        return linear(latents_ME, table_VE, self.model.lm_head.bias)

    def encode_prompt(
        self, prompt_BP: Tensor, live_BP: Tensor, table_VE: Tensor | None = None
    ) -> Tensor:
        """See `LatentDenoiser.encode_prompt`: clean embeddings, or the encoder's last states."""
        if not self._cross:
            return embedding(prompt_BP, self.table() if table_VE is None else table_VE)
        hidden_BPD: Tensor = self.model.encoder_emb(prompt_BP)
        if self.model.prompt_positions:
            hidden_BPD = hidden_BPD + self.model.position_embeddings(_positions(live_BP))
        bias = mask_bias(live_BP[:, None, :].expand(-1, live_BP.shape[1], -1), hidden_BPD.dtype)
        for layer in self.model.encoder.layer:
            hidden_BPD = self._self_attend(layer, hidden_BPD, hidden_BPD, bias)
            hidden_BPD = _feed_forward(layer, hidden_BPD)
        return hidden_BPD

    def predict(
        self,
        latents_BLE: Tensor,
        time_B: Tensor,
        live_BL: Tensor,
        prompt_BPX: Tensor,
        prompt_live_BP: Tensor,
    ) -> Tensor:
        """See `LatentDenoiser.predict`."""
        latents_BLE = latents_BLE.to(self.dtype)
        if self._cross:
            hidden_BLD = self._run_cross(latents_BLE, time_B, live_BL, prompt_BPX, prompt_live_BP)
        else:
            hidden_BLD = self._run_joint(latents_BLE, time_B, live_BL, prompt_BPX, prompt_live_BP)
        predicted_BLE: Tensor = self.model.output_down_proj(hidden_BLD)
        return predicted_BLE

    def _run_joint(
        self,
        latents_BLE: Tensor,
        time_B: Tensor,
        live_BL: Tensor,
        prompt_BPE: Tensor,
        prompt_live_BP: Tensor,
    ) -> Tensor:
        """DiffuSeq: the clean prompt stands before the noised text in one sequence."""
        live_BK = torch.cat([prompt_live_BP, live_BL], dim=1)
        x_BKE = torch.cat([prompt_BPE.to(self.dtype), latents_BLE], dim=1)
        hidden_BKD = self._enter(x_BKE, _positions(live_BK), time_B)
        length, keys = live_BL.shape[1], live_BK.shape[1]
        bias = mask_bias(live_BK[:, None, :].expand(-1, keys, -1), self.dtype)
        last = len(self.model.input_transformers.layer) - 1
        for index, layer in enumerate(self.model.input_transformers.layer):
            # the prompt's own states are read by no one after the last layer
            first = keys - length if index == last else 0
            part = None if bias is None else bias[:, :, first:]
            queries_BLD = self._self_attend(layer, hidden_BKD[:, first:], hidden_BKD, part)
            hidden_BKD = _feed_forward(layer, queries_BLD)
        return hidden_BKD

    def _run_cross(
        self,
        latents_BLE: Tensor,
        time_B: Tensor,
        live_BL: Tensor,
        prompt_BPD: Tensor,
        prompt_live_BP: Tensor,
    ) -> Tensor:
        """Diffusion-LM: the noised text attends to itself, then to the encoded prompt."""
        hidden_BLD = self._enter(latents_BLE, _positions(live_BL), time_B)
        length = live_BL.shape[1]
        own = mask_bias(live_BL[:, None, :].expand(-1, length, -1), self.dtype)
        prompt = mask_bias(prompt_live_BP[:, None, :].expand(-1, length, -1), self.dtype)
        for layer in self.model.input_transformers.layer:
            hidden_BLD = self._self_attend(layer, hidden_BLD, hidden_BLD, own)
            context_BLD = self._attend(layer.crossattention, hidden_BLD, prompt_BPD, prompt)
            hidden_BLD = layer.crossattention.output(context_BLD, hidden_BLD)
            hidden_BLD = _feed_forward(layer, hidden_BLD)
        return hidden_BLD

    def _enter(self, x_BLE: Tensor, positions_BL: Tensor, time_B: Tensor) -> Tensor:
        """The first layer's input: projected embedding, position and timestep, normalised."""
        model = self.model
        features_BT = timestep_features(time_B, model.time_size).to(self.dtype)
        time_BD = model.time_embed(features_BT)
        hidden_BLD = model.position_embeddings(positions_BL) + model.input_up_proj(x_BLE)
        entered_BLD: Tensor = model.LayerNorm(hidden_BLD + time_BD[:, None, :])
        return entered_BLD

    def _self_attend(
        self, layer: BertLayer, queries_BLD: Tensor, keys_BKD: Tensor, bias: Tensor | None
    ) -> Tensor:
        context_BLD = self._attend(layer.attention, queries_BLD, keys_BKD, bias)
        attended_BLD: Tensor = layer.attention.output(context_BLD, queries_BLD)
        return attended_BLD

    def _attend(
        self, attention: BertAttention, queries_BLD: Tensor, keys_BKD: Tensor, bias: Tensor | None
    ) -> Tensor:
        own = attention.self
        kv = torch.stack([self._split(own.key(keys_BKD)), self._split(own.value(keys_BKD))])
        return attend(self._split(own.query(queries_BLD)), kv, None, bias)

    def _split(self, projected_BLD: Tensor) -> Tensor:
        """[B, heads, L, D / heads]."""
        rows, length, width = projected_BLD.shape
        heads = self.model.heads
        return projected_BLD.view(rows, length, heads, width // heads).transpose(1, 2)


def timestep_features(time_B: Tensor, size: int) -> Tensor:
    """Sinusoids (B, T) of times in [0, 1], cosines first (Ho et al. 2020, as published with
    Diffusion-LM).
    """
    half = size // 2
    steps = torch.arange(half, dtype=torch.float32, device=time_B.device)
    frequencies = (-math.log(MAX_PERIOD) * steps / half).exp()
    angles = time_B.float()[:, None] * TIME_SCALE * frequencies
    features = torch.cat([angles.cos(), angles.sin()], dim=1)
    return nn.functional.pad(features, (0, size - 2 * half))


def _feed_forward(layer: BertLayer, hidden_BLD: Tensor) -> Tensor:
    output_BLD: Tensor = layer.output(layer.intermediate(hidden_BLD), hidden_BLD)
    return output_BLD


def _positions(live_BL: Tensor) -> Tensor:
    """Positions that count live ones only; padding gets that of the last before it."""
    return (live_BL.long().cumsum(dim=1) - 1).clamp(min=0)
