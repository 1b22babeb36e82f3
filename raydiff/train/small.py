"""`raydiff train uniform|discrete-flow|masked`: small denoisers of one kind of discrete noise each.

Also `python -m raydiff.train.small KIND`. They share one architecture (stock BERT, tiny) and one
layout, and differ in noise and attention.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from tokenizers import Tokenizer
from transformers import BertConfig, BertForMaskedLM

from raydiff.families import load_spec
from raydiff.models.bert import BertDenoiser
from raydiff.train.batches import TokenisedPairs, tokenise_pairs
from raydiff.train.checkpoint import export_model, save_start
from raydiff.train.corpus import read_split
from raydiff.train.discrete import DiscreteObjective, DiscreteSettings, Kind
from raydiff.train.start import copying_start, pretrained_words, word_width
from raydiff.train.tokenizer import (
    BEGIN_ID,
    END_ID,
    MASK_ID,
    PAD_ID,
    SMALL_VOCAB_SIZE,
    train_tokenizer,
)
from raydiff.train.trainer import Trainer, TrainingSettings

CACHE = "train.npz"
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
    parser = _parser(kind)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)  # each of the trainer's workers is one thread
    work: Path = options.work
    work.mkdir(parents=True, exist_ok=True)
    if options.export is not None:
        export_model(work, options.export, average=options.average)
        return 0
    if not (options.steps or options.decay):
        parser.error("--steps or --decay: expected how far to train, got neither")
    if options.corpus is None and not (work / CACHE).exists():
        parser.error("--corpus: expected a directory made by jobs/build_corpus.py, got none")
    (work / "pid").write_text(str(os.getpid()))
    training, noising = _settings(TRAINING, options), _settings(SHAPES[kind].settings, options)
    pairs = prepare(kind, work, options, training.document_tokens, noising.target_tokens)
    facts = {"kind": kind, "from": str(options.start), **vars(training), **vars(noising)}
    (work / "settings.json").write_text(json.dumps(facts, indent=2))
    torch.manual_seed(training.seed)
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    model = BertForMaskedLM.from_pretrained(str(work / "start"), dtype=torch.float32)
    denoiser = BertDenoiser(model.to(dtype), load_spec(work / "start"), fuse=False)
    objective = DiscreteObjective(kind, denoiser, pairs, noising, training.document_tokens)
    trainer = Trainer(model, objective, pairs, training, work, options.threads)
    if (work / "checkpoint.pt").exists():
        trainer.load(work / "checkpoint.pt")
    signal.signal(signal.SIGTERM, lambda *_: trainer.stop())
    trainer.run(options.steps or trainer.step + options.decay, options.decay)
    return 0


def prepare(
    kind: Kind, work: Path, options: argparse.Namespace, document_tokens: int, target_tokens: int
) -> TokenisedPairs:
    """Tokenizer, start and tokenised training pairs, made once and kept in `work`."""
    cache = work / CACHE
    if cache.exists():
        return TokenisedPairs.load(cache)
    rows = read_split(options.corpus / "train.parquet")
    if options.tokenizer is not None:
        tokenizer = Tokenizer.from_file(str(options.tokenizer))
    else:
        texts = (text for row in rows for text in (row.text, row.summary, row.summary))
        tokenizer = train_tokenizer(texts, options.vocab_size, lower=True)
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


Settings = TypeVar("Settings", TrainingSettings, DiscreteSettings)


def _settings(defaults: Settings, options: argparse.Namespace) -> Settings:
    given = {f.name: getattr(options, f.name) for f in fields(defaults)}
    return replace(defaults, **given)


def _parser(kind: Kind) -> argparse.ArgumentParser:
    shape = SHAPES[kind]
    parser = argparse.ArgumentParser(
        prog=f"raydiff train {kind}",
        description=f"Trains a small denoiser of {shape.noise} noise with {shape.attention} "
        "attention, or goes on from the checkpoint in --work.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--corpus", type=Path, help="directory that jobs/build_corpus.py wrote")
    add("--work", type=Path, required=True, help="directory for checkpoints, log and cache")
    add("--steps", type=int, default=0, help="train up to this step (default: only the decay)")
    add("--decay", type=int, default=0, help="let the rate fall to zero over the last N steps")
    add("--threads", type=int, default=1)
    add("--dtype", choices=("bf16", "fp32"), default="bf16", help="dtype of the forward")
    add("--tokenizer", type=Path, help="tokenizer.json to use instead of training one")
    add(
        "--vocab-size",
        type=int,
        default=SMALL_VOCAB_SIZE,
        help="pieces of a tokenizer trained here",
    )
    add("--start", type=Path, help="model directory whose weights to start from")
    add("--export", type=Path, help="write the model directory from the checkpoint and stop")
    add("--average", action="store_true", help="export the moving average of the weights")
    for defaults in (TRAINING, shape.settings):
        for field in fields(defaults):
            default = getattr(defaults, field.name)
            name = "--" + field.name.replace("_", "-")
            add(name, type=type(default), default=default, help="training setting")
    return parser
