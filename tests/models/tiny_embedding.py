"""Tiny checkpoints of embedding diffusion under the published keys, with random weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from raydiff.models.embedding import EmbeddingDenoiser
from raydiff.models.loading import load_denoiser

VOCAB, WIDTH, HIDDEN, TIME, INNER, LAYERS, HEADS, POSITIONS = 40, 8, 24, 10, 48, 2, 3, 40
SOURCE_TOKENS, TARGET_TOKENS = 20, 12

DIFFUSEQ_ARGS: dict[str, Any] = {
    "hidden_t_dim": TIME,
    "hidden_dim": WIDTH,
    "seq_len": 32,
    "vocab": "bert",
    "vocab_size": VOCAB,
    "config_name": "bert-base-uncased",
    "noise_schedule": "sqrt",
    "diffusion_steps": 2000,
    "rescale_timesteps": True,
    "predict_xstart": True,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": POSITIONS,
}
"""Names as in DiffuSeq's training_args.json, and BERT's for a network smaller than BERT's."""
DIFFUSEQ_IDS = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3}
"""BERT's own lie beyond so small a vocabulary."""

OWN: dict[str, Any] = {
    "model_type": "raydiff-embedding",
    "vocab_size": VOCAB,
    "embedding_size": WIDTH,
    "time_size": TIME,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "hidden_act": "gelu",
    "max_position_embeddings": POSITIONS,
    "layer_norm_eps": 1e-12,
    "prediction": "x0",
    "noise_schedule": "sqrt",
    "raydiff": {
        "pad_id": 0,
        "mask_id": 3,
        "end_ids": [2],
        "forbidden_ids": [0, 1],
        "prompt_prefix_ids": [1],
        "prompt_suffix_ids": [2],
        "max_prompt_tokens": SOURCE_TOKENS,
        "block_length": TARGET_TOKENS,
        "defaults": {"solver": "ddim", "steps": 4, "max_tokens": TARGET_TOKENS},
    },
}
CROSS = {"cross_attention": True, "encoder_layers": 1, "prompt_positions": True}


def shapes(cross: bool) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor under its published key."""
    found: dict[str, tuple[int, ...]] = {
        "word_embedding.weight": (VOCAB, WIDTH),
        "lm_head.bias": (VOCAB,),
        "position_embeddings.weight": (POSITIONS, HIDDEN),
        "LayerNorm.weight": (HIDDEN,),
        "LayerNorm.bias": (HIDDEN,),
        **_linear("time_embed.0", TIME, 4 * TIME),
        **_linear("time_embed.2", 4 * TIME, HIDDEN),
        **_linear("input_up_proj.0", WIDTH, HIDDEN),
        **_linear("input_up_proj.2", HIDDEN, HIDDEN),
        **_linear("output_down_proj.0", HIDDEN, HIDDEN),
        **_linear("output_down_proj.2", HIDDEN, WIDTH),
    }
    for layer in range(LAYERS):
        found |= _layer(f"input_transformers.layer.{layer}", cross)
    if cross:
        found["encoder_emb.weight"] = (VOCAB, HIDDEN)
        found |= _layer("encoder.layer.0", cross=False)
    return found


def _linear(name: str, inner: int, outer: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outer, inner), f"{name}.bias": (outer,)}


def _layer(name: str, cross: bool) -> dict[str, tuple[int, ...]]:
    found = {
        **_linear(f"{name}.intermediate.dense", HIDDEN, INNER),
        **_linear(f"{name}.output.dense", INNER, HIDDEN),
        f"{name}.output.LayerNorm.weight": (HIDDEN,),
        f"{name}.output.LayerNorm.bias": (HIDDEN,),
    }
    for attention in ("attention", "crossattention") if cross else ("attention",):
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            found |= _linear(f"{name}.{attention}.{part}", HIDDEN, HIDDEN)
        found[f"{name}.{attention}.output.LayerNorm.weight"] = (HIDDEN,)
        found[f"{name}.{attention}.output.LayerNorm.bias"] = (HIDDEN,)
    return found


def weights(cross: bool, seed: int = 0) -> dict[str, Tensor]:
    """Random weights, large enough that predictions differ."""
    generator = torch.Generator().manual_seed(seed)
    made = {
        key: 0.3 * torch.randn(shape, generator=generator) for key, shape in shapes(cross).items()
    }
    for key in made:
        if key.endswith("LayerNorm.weight"):
            made[key] += 1
        elif key.endswith("bias") or "attention.output.dense" in key:
            made[key] *= 0.2
        elif key.startswith(("word_embedding", "input_up_proj", "position_embeddings")):
            made[key] *= 3
    made["output_down_proj.2.weight"] *= 3
    return made


def save(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """A checkpoint directory, the tied head's weight and the buffer included, as published."""
    published = {
        **tensors,
        "lm_head.weight": tensors["word_embedding.weight"].clone(),
        "position_ids": torch.arange(POSITIONS)[None],
    }
    save_file(published, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "added_tokens.json").write_text(json.dumps(DIFFUSEQ_IDS))
    return folder


def load(folder: Path) -> EmbeddingDenoiser:
    """The denoiser of a checkpoint directory, in fp32."""
    denoiser = load_denoiser(folder, device="cpu", dtype="fp32")
    assert isinstance(denoiser, EmbeddingDenoiser)
    return denoiser
