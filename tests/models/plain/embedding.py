"""Embedding diffusion by its published description: one row, without padding, one head at a time.

Each function takes a checkpoint's tensors under their published keys. Nothing here comes from
transformers or raydiff.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


def diffuseq(w: Weights, heads: int, source: Tensor, noised: Tensor, step: float) -> Tensor:
    """DiffuSeq: what is predicted of `noised` [L, E], behind the clean embeddings of the source.
    `step` is the published timestep, 0 to 1000.
    """
    sequence = torch.cat([w["word_embedding.weight"][source], noised])
    x = entered(w, sequence, step)
    for layer in range(layer_count(w, "input_transformers")):
        x = bert_layer(w, f"input_transformers.layer.{layer}", heads, x)
    return projected(w, "output_down_proj", x)[len(source) :]


def diffusion_lm(
    w: Weights, heads: int, source: Tensor, noised: Tensor, step: float, positions: bool
) -> Tensor:
    """Diffusion-LM with a conditioning encoder. `positions`: the source is given positions too,
    which the published encoder is not.
    """
    context = w["encoder_emb.weight"][source]
    if positions:
        context = context + w["position_embeddings.weight"][: len(source)]
    for layer in range(layer_count(w, "encoder")):
        context = bert_layer(w, f"encoder.layer.{layer}", heads, context)
    x = entered(w, noised, step)
    for layer in range(layer_count(w, "input_transformers")):
        x = bert_layer(w, f"input_transformers.layer.{layer}", heads, x, context)
    return projected(w, "output_down_proj", x)


def entered(w: Weights, x: Tensor, step: float) -> Tensor:
    features = time_features(step, w["time_embed.0.weight"].shape[1])
    hidden = linear(w, "time_embed.0", features)
    time = linear(w, "time_embed.2", hidden * torch.sigmoid(hidden))
    x = projected(w, "input_up_proj", x) + w["position_embeddings.weight"][: len(x)] + time
    return layer_norm(w, "LayerNorm", x)


def time_features(step: float, size: int) -> Tensor:
    half = size // 2
    angles = [step * 10000 ** (-i / half) for i in range(half)]
    return torch.tensor([math.cos(a) for a in angles] + [math.sin(a) for a in angles])


def bert_layer(
    w: Weights, name: str, heads: int, x: Tensor, context: Tensor | None = None
) -> Tensor:
    x = attended(w, f"{name}.attention", heads, x, x)
    if context is not None:
        x = attended(w, f"{name}.crossattention", heads, x, context)
    inner = linear(w, f"{name}.intermediate.dense", x)
    inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
    outer = linear(w, f"{name}.output.dense", inner)
    return layer_norm(w, f"{name}.output.LayerNorm", outer + x)


def attended(w: Weights, name: str, heads: int, x: Tensor, context: Tensor) -> Tensor:
    q = linear(w, f"{name}.self.query", x).chunk(heads, dim=-1)
    k = linear(w, f"{name}.self.key", context).chunk(heads, dim=-1)
    v = linear(w, f"{name}.self.value", context).chunk(heads, dim=-1)
    width = q[0].shape[-1]
    seen = [torch.softmax(q[h] @ k[h].T / math.sqrt(width), dim=-1) @ v[h] for h in range(heads)]
    out = linear(w, f"{name}.output.dense", torch.cat(seen, dim=-1))
    return layer_norm(w, f"{name}.output.LayerNorm", out + x)


def projected(w: Weights, name: str, x: Tensor) -> Tensor:
    return linear(w, f"{name}.2", torch.tanh(linear(w, f"{name}.0", x)))


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def layer_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    scaled = centred / torch.sqrt((centred**2).mean(dim=-1, keepdim=True) + 1e-12)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def layer_count(w: Weights, name: str) -> int:
    return len({key.split(".")[2] for key in w if key.startswith(f"{name}.layer.")})
