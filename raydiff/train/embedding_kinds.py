"""`raydiff train diffuseq|diffusion-lm|flow`: small denoisers of noise on embeddings.

Also `python -m raydiff.train.embedding_kinds KIND`. They share BERT's layers and differ in layout
and in what they predict.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor

from raydiff.families import load_spec
from raydiff.models.embedding import EmbeddingDenoiser
from raydiff.train.batches import TokenisedPairs, tokenise_pairs
from raydiff.train.corpus import read_split
from raydiff.train.embedding import (
    EmbeddingObjective,
    EmbeddingSettings,
    log_frequencies,
    normalised,
)
from raydiff.train.embedding_checkpoint import (
    export_embedding_model,
    load_start,
    save_start,
    write_config,
)
from raydiff.train.start import pretrained_words, random_words
from raydiff.train.tokenizer import SMALL_VOCAB_SIZE, save_tokenizer, train_tokenizer
from raydiff.train.trainer import Trainer, TrainingSettings

Kind = Literal["diffuseq", "diffusion-lm", "flow"]

CACHE = "train.npz"
HIDDEN, HEADS, EMBEDDING_SIZE = 128, 4, 48
DECODING: dict[str, Any] = {"steps": 12, "rounding": "softmax", "clamp": True}
TRAINING = TrainingSettings(
    batch_rows=64,
    shards=1,
    document_tokens=46,
    peak_rate=2e-3,
    embedding_rate=0.5,
    warmup_steps=100,
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a kind's checkpoint says of itself, and how its targets are drawn."""

    network: dict[str, Any]
    solver: str
    settings: EmbeddingSettings


_JOINT = {"num_hidden_layers": 5, "encoder_layers": 0, "cross_attention": False}
_CROSS = {"num_hidden_layers": 4, "encoder_layers": 2, "cross_attention": True}

SHAPES: dict[Kind, Shape] = {
    "diffuseq": Shape(
        network={**_JOINT, "prediction": "x0", "noise_schedule": "sqrt"},
        solver="ddpm",
        settings=EmbeddingSettings(),
    ),
    "diffusion-lm": Shape(
        network={
            **_CROSS,
            "prediction": "epsilon",
            "noise_schedule": "sqrt",
            "first_time": 0.98,
        },
        solver="ddim",
        settings=EmbeddingSettings(copies=3),
    ),
    "flow": Shape(
        network={**_CROSS, "prediction": "velocity", "noise_schedule": "rectified"},
        solver="euler",
        settings=EmbeddingSettings(copies=3),
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
        export_embedding_model(work, options.export, options.average)
        return 0
    if not (options.steps or options.decay):
        parser.error("--steps or --decay: expected how far to train, got neither")
    if options.corpus is None and not (work / CACHE).exists():
        parser.error("--corpus: expected a directory made by jobs/build_corpus.py, got none")
    (work / "pid").write_text(str(os.getpid()))
    training, noising = _settings(TRAINING, options), _settings(SHAPES[kind].settings, options)
    pairs = prepare(kind, work, options, training.document_tokens, noising.target_tokens)
    facts = {"kind": kind, **vars(training), **vars(noising)}
    (work / "settings.json").write_text(json.dumps(facts, indent=2))
    trainer = make_trainer(work, pairs, training, noising, options.dtype, options.threads)
    if (work / "checkpoint.pt").exists():
        trainer.load(work / "checkpoint.pt")
    signal.signal(signal.SIGTERM, lambda *_: trainer.stop())
    trainer.run(options.steps or trainer.step + options.decay, options.decay)
    return 0


def make_trainer(
    work: Path,
    pairs: TokenisedPairs,
    training: TrainingSettings,
    noising: EmbeddingSettings,
    dtype: str = "fp32",
    threads: int = 1,
) -> Trainer[Any]:
    """A trainer of the untrained model that `work` describes; deterministic in the seed."""
    model = load_start(work / "start")
    bias = log_frequencies(pairs, noising, len(model.lm_head.bias))
    model.lm_head.bias.data.copy_(bias - bias.mean())
    model.word_embedding.weight.requires_grad_(noising.embeddings == "joint")
    model.to(torch.bfloat16 if dtype == "bf16" else torch.float32)
    denoiser = EmbeddingDenoiser(model, load_spec(work / "start"))
    objective = EmbeddingObjective(denoiser, pairs, noising, training.document_tokens)
    return Trainer(model, objective, pairs, training, work, threads)


def prepare(
    kind: Kind, work: Path, options: argparse.Namespace, document_tokens: int, target_tokens: int
) -> TokenisedPairs:
    """Tokenizer, config and tokenised training pairs, made once and kept in `work`."""
    cache = work / CACHE
    if cache.exists():
        return TokenisedPairs.load(cache)
    rows = read_split(options.corpus / "train.parquet")
    if options.tokenizer is not None:
        tokenizer = Tokenizer.from_file(str(options.tokenizer))
    else:
        texts = (text for row in rows for text in (row.text, row.summary, row.summary))
        tokenizer = train_tokenizer(texts, options.vocab_size, lower=True)
    shape = SHAPES[kind]
    network = {
        "vocab_size": tokenizer.get_vocab_size(),
        "embedding_size": EMBEDDING_SIZE,
        "time_size": 64,
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "intermediate_size": 3 * HIDDEN,
        "hidden_act": "gelu",
        "max_position_embeddings": document_tokens + 2 + target_tokens,
        "layer_norm_eps": 1e-12,
        "prompt_positions": True,
        **shape.network,
    }
    defaults = {"policy": "solver", "solver": shape.solver, **DECODING}
    save_tokenizer(tokenizer, work / "start")
    write_config(work / "start", network, document_tokens + 2, target_tokens, defaults)
    make_words = pretrained_words if options.words == "pretrained" else _unrelated_words
    words_VE = normalised(make_words(tokenizer, EMBEDDING_SIZE, options.seed))
    save_start(work / "start", network, words_VE, document_tokens + 2, options.seed)
    pairs = tokenise_pairs(tokenizer, rows)
    pairs.save(cache)
    return pairs


def _unrelated_words(tokenizer: Tokenizer, width: int, seed: int) -> Tensor:
    return random_words(tokenizer.get_vocab_size(), width, seed)


Settings = TypeVar("Settings", TrainingSettings, EmbeddingSettings)


def _settings(defaults: Settings, options: argparse.Namespace) -> Settings:
    given = {f.name: getattr(options, f.name) for f in fields(defaults)}
    return replace(defaults, **given)


def _parser(kind: Kind) -> argparse.ArgumentParser:
    shape = SHAPES[kind]
    parser = argparse.ArgumentParser(
        prog=f"raydiff train {kind}",
        description="Trains a small denoiser of noise on embeddings that predicts "
        f"{shape.network['prediction']}, or goes on from the checkpoint in --work.",
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
    add("--vocab-size", type=int, default=SMALL_VOCAB_SIZE, help="pieces of a tokenizer made here")
    add(
        "--words",
        choices=("pretrained", "random"),
        default="pretrained",
        help="word embeddings begin as MiniLM's, condensed (needs raydiff[train]), or unrelated",
    )
    add("--export", type=Path, help="write the model directory from the checkpoint and stop")
    add("--average", action="store_true", help="export the moving average of the weights")
    for defaults in (TRAINING, shape.settings):
        for field in fields(defaults):
            default = getattr(defaults, field.name)
            name = "--" + field.name.replace("_", "-")
            if isinstance(default, bool):
                action = argparse.BooleanOptionalAction
                add(name, action=action, default=default, help="training setting")
            else:
                add(name, type=type(default), default=default, help="training setting")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(cast(Kind, sys.argv[1]), sys.argv[2:]))
