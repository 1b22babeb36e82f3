"""Writes checkpoints of embedding diffusion: published keys, our own `config.json`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from raydiff.families.embedding import MODEL_TYPE
from raydiff.models.embedding import EmbeddingNetwork, build
from raydiff.train.embedding import normalised
from raydiff.train.embedding_start import copying_start
from raydiff.train.tokenizer import BEGIN_ID, END_ID, MASK_ID, PAD_ID

WORD_EMBEDDING = "word_embedding.weight"
WEIGHTS = "model.safetensors"


def write_config(
    folder: Path,
    network: Mapping[str, Any],
    prompt_tokens: int,
    target_tokens: int,
    defaults: Mapping[str, Any],
) -> None:
    """Writes `config.json` of a network whose tokenizer is ours."""
    section = {
        "pad_id": PAD_ID,
        "mask_id": MASK_ID,
        "end_ids": [END_ID],
        "forbidden_ids": [PAD_ID, BEGIN_ID],
        "prompt_prefix_ids": [BEGIN_ID],
        "prompt_suffix_ids": [END_ID],
        "max_prompt_tokens": prompt_tokens,
        "block_length": target_tokens,
        "defaults": {**defaults, "max_tokens": target_tokens},
    }
    config = {"model_type": MODEL_TYPE, **network, "raydiff": section}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def save_start(
    folder: Path, network: Mapping[str, Any], words_VE: Tensor, prompt_tokens: int, seed: int
) -> None:
    """Writes the untrained weights of a network whose config is in `folder`."""
    torch.manual_seed(seed)
    model = build(network)
    copying_start(model, words_VE, prompt_tokens, network["prediction"])
    save_file(model.state_dict(), folder / WEIGHTS)


def load_start(folder: Path) -> EmbeddingNetwork:
    """The untrained network that `save_start` wrote."""
    model = build(json.loads((folder / "config.json").read_text()))
    model.load_state_dict(load_file(folder / WEIGHTS))
    return model


def export_embedding_model(work: Path, folder: Path, average: bool) -> None:
    """Writes a training run's weights in bf16 with the tokenizer and config it began with.

    The layer norm of embeddings that were trained with one is worked into them. A `config.json`
    already there is kept.
    """
    settings = json.loads((work / "settings.json").read_text())
    model = load_start(work / "start")
    state = torch.load(work / "checkpoint.pt", weights_only=True)
    # frozen embeddings are not among the trained weights
    model.load_state_dict(state["average" if average else "master"], strict=False)
    weights = {key: value.detach() for key, value in model.state_dict().items()}
    if settings["embedding_norm"]:
        weights[WORD_EMBEDDING] = normalised(weights[WORD_EMBEDDING])
    half = {key: value.to(torch.bfloat16).contiguous() for key, value in weights.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(half, folder / WEIGHTS, metadata={"format": "pt"})
    # safetensors writes for the owner alone, but a package's files are for everyone.
    (folder / WEIGHTS).chmod(0o644)
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        if name != "config.json" or not (folder / name).exists():
            shutil.copyfile(work / "start" / name, folder / name)
