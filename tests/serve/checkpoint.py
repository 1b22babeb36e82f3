"""Writes a tiny checkpoint directory with random weights: a model of its own, loaded for real."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from transformers import BertConfig, BertForMaskedLM

SPECIALS = ("<pad>", "<begin>", "<end>", "<mask>")
BLOCK_LENGTH = 16
MAX_PROMPT_TOKENS = 64
MAX_NEW_TOKENS = 1024


def write_checkpoint(path: Path, *, seed: int = 0, hidden: int = 32) -> Path:
    """A byte-level model that says nonsense of letters, deterministically for a seed."""
    path.mkdir(parents=True)
    vocab = {piece: i for i, piece in enumerate((*SPECIALS, *_byte_pieces()))}
    _write_tokenizer(path, vocab)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=MAX_PROMPT_TOKENS + MAX_NEW_TOKENS,
        pad_token_id=0,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        if weight.ndim == 2:
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    model.save_pretrained(path)
    _add_section(path / "config.json", vocab)
    return path


def _byte_pieces() -> list[str]:
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _write_tokenizer(path: Path, vocab: dict[str, int]) -> None:
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIALS))
    backend.save(str(path / "tokenizer.json"))


def _add_section(file: Path, vocab: dict[str, int]) -> None:
    config = json.loads(file.read_text())
    letters = {vocab[c] for c in "abcdefghijklmnopqrstuvwxyz"}
    config["raydiff"] = {
        "mask_id": 3,
        "end_ids": [2],
        "forbidden_ids": sorted(set(vocab.values()) - letters - {2}),
        "prompt_prefix_ids": [1],
        "prompt_suffix_ids": [2],
        "max_prompt_tokens": MAX_PROMPT_TOKENS,
        "block_length": BLOCK_LENGTH,
        "max_new_tokens": MAX_NEW_TOKENS,
        "target_position": MAX_PROMPT_TOKENS,
        "defaults": {"policy": "quota", "steps": BLOCK_LENGTH, "max_tokens": BLOCK_LENGTH},
    }
    file.write_text(json.dumps(config))
