"""`raydiff train summarizer`: makes the bundled model from a corpus; also `python -m
raydiff.train.summarizer`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import BertForMaskedLM

from raydiff.families import load_spec
from raydiff.models.bert import BertDenoiser
from raydiff.train import command
from raydiff.train.batches import TokenisedPairs, tokenise_pairs
from raydiff.train.checkpoint import TARGET_POSITION, export_model, save_start
from raydiff.train.corpus import read_split
from raydiff.train.objective import BlockObjective, BlockSettings
from raydiff.train.tokenizer import train_tokenizer
from raydiff.train.trainer import Trainer, TrainingSettings
from raydiff.train.transplant import start_folder, transplant


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = command.parser_of(
        "summarizer",
        "Trains the bundled summariser",
        (TrainingSettings(), BlockSettings()),
        threads=len(os.sched_getaffinity(0)),
        left_out=("target_position",),
    )
    return command.run(parser, argv, export_model, _make_trainer)


def _make_trainer(options: argparse.Namespace) -> Trainer[Any]:
    work: Path = options.work
    pairs = prepare(work, options.corpus)
    settings = command.settings_of(TrainingSettings(), options)
    blocks = command.settings_of(BlockSettings(), options)
    command.save_settings(work, {**vars(settings), **vars(blocks)})
    torch.manual_seed(settings.seed)
    model = BertForMaskedLM.from_pretrained(str(work / "start"), dtype=torch.float32)
    denoiser = BertDenoiser(model.to(torch.bfloat16), load_spec(work / "start"), fuse=False)
    objective = BlockObjective(denoiser, pairs, blocks, settings.document_tokens)
    return Trainer(model, objective, pairs, settings, work, options.threads)


def prepare(work: Path, corpus: Path | None) -> TokenisedPairs:
    """Tokenizer, transplanted start and tokenised training pairs, made once and kept in `work`."""
    cache = work / command.CACHE
    if cache.exists():
        return TokenisedPairs.load(cache)
    assert corpus is not None
    rows = read_split(corpus / "train.parquet")
    tokenizer = train_tokenizer(command.texts_of(rows))
    model = transplant(tokenizer, start_folder(), TARGET_POSITION)
    save_start(work / "start", tokenizer, model)
    pairs = tokenise_pairs(Tokenizer.from_file(str(work / "start" / "tokenizer.json")), rows)
    pairs.save(cache)
    return pairs


if __name__ == "__main__":
    raise SystemExit(main())
