"""Writes model directories that both raydiff and stock transformers load."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import BertForMaskedLM

from raydiff.train.tokenizer import (
    BEGIN_ID,
    CONTEXT_TOKENS,
    END_ID,
    MASK_ID,
    PAD_ID,
    save_tokenizer,
)

TARGET_POSITION = 448
BLOCK_LENGTH = 32

RAYDIFF_SECTION: dict[str, Any] = {
    "mask_id": MASK_ID,
    "end_ids": [END_ID],
    "forbidden_ids": [PAD_ID, BEGIN_ID],
    "prompt_prefix_ids": [BEGIN_ID],
    "prompt_suffix_ids": [END_ID],
    "max_prompt_tokens": TARGET_POSITION,
    "block_length": BLOCK_LENGTH,
    "max_new_tokens": CONTEXT_TOKENS - TARGET_POSITION,
    "target_position": TARGET_POSITION,
    "end_bias": 1.25,
    "end_threshold": 0.5,
    "drop_after_end": True,
    "defaults": {"policy": "quota", "steps": 16, "max_tokens": BLOCK_LENGTH},
}


def save_start(
    folder: Path,
    tokenizer: Tokenizer,
    model: BertForMaskedLM,
    section: Mapping[str, Any] = RAYDIFF_SECTION,
) -> None:
    """Writes the untrained model with its tokenizer and `raydiff` section."""
    save_tokenizer(tokenizer, folder)
    model.save_pretrained(str(folder))
    _write_section(folder, section)


def export_model(work: Path, folder: Path, average: bool) -> None:
    """Writes a training run's weights in bf16, with the start's tokenizer; keeps a `raydiff`
    section already there.
    """
    here = folder / "config.json"
    source = here if here.exists() else work / "start" / "config.json"
    section = json.loads(source.read_text())["raydiff"]
    state = torch.load(work / "checkpoint.pt", weights_only=True)
    model = BertForMaskedLM.from_pretrained(str(work / "start"), dtype=torch.float32)
    model.load_state_dict(state["average" if average else "master"], strict=False)
    model.to(torch.bfloat16).save_pretrained(str(folder))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(work / "start" / name, folder / name)
    # safetensors writes for the owner alone, but a package's files are for everyone.
    (folder / "model.safetensors").chmod(0o644)
    _write_section(folder, section)


def _write_section(folder: Path, section: Mapping[str, Any]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["raydiff"] = dict(section)
    path.write_text(json.dumps(config, indent=2) + "\n")
