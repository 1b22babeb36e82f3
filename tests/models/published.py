"""Checkpoint directories of masked encoders under their published key names, made tiny."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor

Weights = dict[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]

SPREAD = 0.5
"""Standard deviation of random weights, large enough that predictions differ."""


def random_weights(shapes: Shapes, seed: int = 0) -> Weights:
    """Normal weights; scales of layer norms (`gamma`, `norm.weight`, ...) lie around 1, and
    embeddings of positions are large, so that masks beside each other become different tokens.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = {key: torch.randn(shape, generator=generator) for key, shape in shapes.items()}
    drawn = {key: t * 4 if "position" in key else t for key, t in drawn.items()}
    return {key: t * SPREAD + (1.0 if _is_scale(key) else 0.0) for key, t in drawn.items()}


def write_checkpoint(
    folder: Path, config: dict[str, Any], weights: Weights, special_ids: Mapping[str, int]
) -> Path:
    """A directory with config, weights, and a tokenizer of the words w0, w1, ... and the special
    tokens.
    """
    tokens = {str(i): {"content": token} for token, i in special_ids.items()}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": tokens}))
    words = {f"w{i}": i for i in range(config["vocab_size"]) if i not in special_ids.values()}
    tokenizer = Tokenizer(WordLevel(words | dict(special_ids), unk_token=next(iter(words))))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(list(special_ids))
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(weights, folder / "model.safetensors")
    return folder


def _is_scale(key: str) -> bool:
    return key.endswith((".gamma", "norm.weight", "LayerNorm.weight"))
