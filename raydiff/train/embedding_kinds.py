"""`raydiff train diffuseq|diffusion-lm|flow`: small denoisers of noise on embeddings.

Also `python -m raydiff.train.embedding_kinds KIND`. They share BERT's layers and differ in layout
and in what they predict.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor

from raydiff.families import load_spec
from raydiff.models.embedding import EmbeddingDenoiser
from raydiff.train import command
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
from raydiff.train.tokenizer import save_tokenizer
from raydiff.train.trainer import Trainer, TrainingSettings

Kind = Literal["diffuseq", "diffusion-lm", "flow"]

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
    return command.run(
        _parser(kind), argv, export_embedding_model, lambda o: _prepared_trainer(kind, o)
    )


def _prepared_trainer(kind: Kind, options: argparse.Namespace) -> Trainer[Any]:
    work: Path = options.work
    training = command.settings_of(TRAINING, options)
    noising = command.settings_of(SHAPES[kind].settings, options)
    pairs = prepare(kind, work, options, training.document_tokens, noising.target_tokens)
    command.save_settings(work, {"kind": kind, **vars(training), **vars(noising)})
    return make_trainer(work, pairs, training, noising, options.dtype, options.threads)


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
    cache = work / command.CACHE
    if cache.exists():
        return TokenisedPairs.load(cache)
    rows = read_split(options.corpus / "train.parquet")
    tokenizer = command.small_tokenizer(options, rows)
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


def _parser(kind: Kind) -> argparse.ArgumentParser:
    shape = SHAPES[kind]
    predicted = shape.network["prediction"]
    description = f"Trains a small denoiser of noise on embeddings that predicts {predicted}"
    parser = command.parser_of(kind, description, (TRAINING, shape.settings))
    command.add_small_flags(parser)
    parser.add_argument(
        "--words",
        choices=("pretrained", "random"),
        default="pretrained",
        help="word embeddings begin as MiniLM's, condensed (needs raydiff[train]), or unrelated",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main(cast(Kind, sys.argv[1]), sys.argv[2:]))
