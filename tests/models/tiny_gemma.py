"""A tiny DiffusionGemma: its published config and weights, random, and its stock module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

from raydiff.families.diffusion_gemma import FAMILY
from raydiff.families.family import Source
from raydiff.models.diffusion_gemma import DiffusionGemmaDenoiser, build, wrap

Weights = dict[str, Tensor]

VOCAB, CANVAS, WINDOW = 100, 8, 8
END_IDS = [1, 6]


def tiny_config(layer_types: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Six layers, the last in full attention; names as in the public `config.json`."""
    kinds = layer_types or ("sliding_attention",) * 5 + ("full_attention",)
    text = {
        "model_type": "diffusion_gemma_text",
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 24,
        "num_hidden_layers": len(kinds),
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_global_key_value_heads": 1,
        "head_dim": 8,
        "global_head_dim": 16,
        "layer_types": list(kinds),
        "sliding_window": WINDOW,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 16,
        "max_position_embeddings": 256,
        "use_bidirectional_attention": "vision",
        "bos_token_id": 2,
    }
    vision = {
        "model_type": "gemma4_vision",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
    }
    return {
        "model_type": "diffusion_gemma",
        "text_config": text,
        "vision_config": vision,
        "canvas_length": CANVAS,
    }


def tiny_stock(
    config: dict[str, Any], sure: float = 0.15, calm: float = 1.0
) -> DiffusionGemmaForBlockDiffusion:
    """The stock module, norms and scalars away from 1 so that each counts.

    `sure` is the spread of embeddings: the larger, the surer the predictions. `calm` scales what a
    layer adds: the smaller, the more a canvas predicts itself and becomes stable.
    """
    model = DiffusionGemmaForBlockDiffusion(DiffusionGemmaConfig(**config)).eval()
    generator = torch.Generator().manual_seed(7)
    for key, tensor in _untied(model).items():
        drawn = torch.randn(tensor.shape, generator=generator)
        small = key.endswith(("norm.weight", "scale", "scalar")) or "layernorm" in key
        spread = sure if "embed_tokens" in key else 0.15
        tensor.copy_(1 + 0.2 * drawn if small else spread * drawn)
        if key.endswith(_ADDED):
            tensor.mul_(calm)
    return model.requires_grad_(False)


_ADDED = ("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")


def published_weights(model: DiffusionGemmaForBlockDiffusion) -> Weights:
    """The tensors that a checkpoint holds: tied ones once, the vision part too."""
    return {key: tensor.clone() for key, tensor in _untied(model).items()}


def _untied(model: DiffusionGemmaForBlockDiffusion) -> Weights:
    encoder = "model.encoder.language_model."
    return {
        key: tensor
        for key, tensor in model.state_dict().items()
        if key != "lm_head.weight" and (not key.startswith(encoder) or key.endswith("layer_scalar"))
    }


def tiny_denoiser(
    config: dict[str, Any], weights: Weights, dtype: torch.dtype = torch.float32
) -> DiffusionGemmaDenoiser:
    """Ours, over the same weights."""
    module = build(FAMILY.stock_config(config)).eval().requires_grad_(False).to(dtype)
    module.load_state_dict({key: weights[key] for key in module.state_dict()})
    return wrap(module, FAMILY.spec(Source(name="tiny", config=config)))
