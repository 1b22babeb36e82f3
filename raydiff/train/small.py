"""`raydiff train uniform|discrete-flow|masked`: small denoisers of one kind of discrete noise each.

Also `python -m raydiff.train.small KIND`. They share one architecture (stock BERT, tiny) and one
layout, and differ in noise and attention.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from transformers import BertConfig, BertForMaskedLM

from raydiff.families import load_spec
from raydiff.models.bert import BertDenoiser
from raydiff.train import command
from raydiff.train.batches import TokenisedPairs, tokenise_pairs
from raydiff.train.checkpoint import export_model, save_start
from raydiff.train.corpus import read_split
from raydiff.train.discrete import DiscreteObjective, DiscreteSettings, Kind
from raydiff.train.start import copying_start, pretrained_words, word_width
from raydiff.train.tokenizer import BEGIN_ID, END_ID, MASK_ID, PAD_ID
from raydiff.train.trainer import Trainer, TrainingSettings

HIDDEN, LAYERS, HEADS = 128, 6, 4
TRAINING = TrainingSettings(
    batch_rows=48, shards=1, document_tokens=40, peak_rate=2e-3, warmup_steps=30
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a kind's checkpoint says of itself, and how its targets are drawn."""

    noise: str
    attention: str
    policy: str
    steps: int
    settings: DiscreteSettings


SHAPES: dict[Kind, Shape] = {
    "uniform": Shape(
        noise="uniform",
        attention="encoder-block",
        policy="entropy_bound",
        steps=24,
        settings=DiscreteSettings(),
    ),
    "discrete-flow": Shape(
        noise="absorbing",
        attention="encoder-block",
        policy="flow",
        steps=24,
        settings=DiscreteSettings(),
    ),
    "masked": Shape(
        noise="absorbing",
        attention="full",
        policy="quota",
        steps=24,
        settings=DiscreteSettings(copies=1),
    ),
}


def main(kind: Kind, argv: Sequence[str] | None = None) -> int:
    """Runs the command line of one kind; returns the exit status."""
    return command.run(_parser(kind), argv, export_model, lambda o: _make_trainer(kind, o))


def _make_trainer(kind: Kind, options: argparse.Namespace) -> Trainer[Any]:
    work: Path = options.work
    training = command.settings_of(TRAINING, options)
    noising = command.settings_of(SHAPES[kind].settings, options)
    pairs = prepare(kind, work, options, training.document_tokens, noising.target_tokens)
    facts = {"kind": kind, "from": str(options.start), **vars(training), **vars(noising)}
    command.save_settings(work, facts)
    torch.manual_seed(training.seed)
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    model = BertForMaskedLM.from_pretrained(str(work / "start"), dtype=torch.float32)
    denoiser = BertDenoiser(model.to(dtype), load_spec(work / "start"), fuse=False)
    objective = DiscreteObjective(kind, denoiser, pairs, noising, training.document_tokens)
    return Trainer(model, objective, pairs, training, work, options.threads)


def prepare(
    kind: Kind, work: Path, options: argparse.Namespace, document_tokens: int, target_tokens: int
) -> TokenisedPairs:
    """Tokenizer, start and tokenised training pairs, made once and kept in `work`."""
    cache = work / command.CACHE
    if cache.exists():
        return TokenisedPairs.load(cache)
    rows = read_split(options.corpus / "train.parquet")
    tokenizer = command.small_tokenizer(options, rows)
    torch.manual_seed(options.seed)
    if options.start is not None:
        model = BertForMaskedLM.from_pretrained(str(options.start), dtype=torch.float32)
    else:
        config = start_config(tokenizer.get_vocab_size(), document_tokens + 2 + target_tokens)
        words = pretrained_words(tokenizer, word_width(config), options.seed)
        model = copying_start(config, document_tokens + 2, words)
    section = section_of(kind, document_tokens + 2, target_tokens)
    save_start(work / "start", tokenizer, model, section)
    pairs = tokenise_pairs(tokenizer, rows)
    pairs.save(cache)
    return pairs


def start_config(vocab_size: int, positions: int) -> BertConfig:
    """The architecture that all kinds share."""
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * HIDDEN,
        max_position_embeddings=positions,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=PAD_ID,
        architectures=["BertForMaskedLM"],
    )


def section_of(kind: Kind, prompt_tokens: int, target_tokens: int) -> dict[str, Any]:
    """The `raydiff` section of a kind's `config.json`."""
    shape = SHAPES[kind]
    return {
        "noise": shape.noise,
        "attention": shape.attention,
        "mask_id": MASK_ID,
        "end_ids": [END_ID],
        "forbidden_ids": [PAD_ID, BEGIN_ID],
        "prompt_prefix_ids": [BEGIN_ID],
        "prompt_suffix_ids": [END_ID],
        "max_prompt_tokens": prompt_tokens,
        "block_length": target_tokens,
        "max_new_tokens": target_tokens,
        "target_position": prompt_tokens,
        "defaults": {
            "policy": shape.policy,
            "steps": min(shape.steps, target_tokens),
            "max_tokens": target_tokens,
        },
    }


def _parser(kind: Kind) -> argparse.ArgumentParser:
    shape = SHAPES[kind]
    description = f"Trains a small denoiser of {shape.noise} noise with {shape.attention} attention"
    parser = command.parser_of(kind, description, (TRAINING, shape.settings))
    command.add_small_flags(parser)
    parser.add_argument("--start", type=Path, help="model directory whose weights to start from")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(cast(Kind, sys.argv[1]), sys.argv[2:]))
