"""`raydiff train summarizer`: makes the bundled model from a corpus; also `python -m
raydiff.train.summarizer`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

import torch
from tokenizers import Tokenizer
from transformers import BertForMaskedLM

from raydiff.families import load_spec
from raydiff.models.bert import BertDenoiser
from raydiff.train.batches import TokenisedPairs, tokenise_pairs
from raydiff.train.checkpoint import TARGET_POSITION, export_model, save_start
from raydiff.train.corpus import read_split
from raydiff.train.objective import BlockObjective, BlockSettings
from raydiff.train.tokenizer import train_tokenizer
from raydiff.train.trainer import Trainer, TrainingSettings
from raydiff.train.transplant import start_folder, transplant

CACHE = "train.npz"
"""Tokenised training pairs, in the work directory."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = _parser()
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
    pairs = prepare(work, options.corpus)
    settings = _settings(TrainingSettings, options)
    blocks = _settings(BlockSettings, options)
    facts = {**vars(settings), **vars(blocks)}
    (work / "settings.json").write_text(json.dumps(facts, indent=2))
    torch.manual_seed(settings.seed)
    model = BertForMaskedLM.from_pretrained(str(work / "start"), dtype=torch.float32)
    denoiser = BertDenoiser(model.to(torch.bfloat16), load_spec(work / "start"), fuse=False)
    objective = BlockObjective(denoiser, pairs, blocks, settings.document_tokens)
    trainer = Trainer(model, objective, pairs, settings, work, options.threads)
    if (work / "checkpoint.pt").exists():
        trainer.load(work / "checkpoint.pt")
    signal.signal(signal.SIGTERM, lambda *_: trainer.stop())
    trainer.run(options.steps or trainer.step + options.decay, options.decay)
    return 0


def prepare(work: Path, corpus: Path | None) -> TokenisedPairs:
    """Tokenizer, transplanted start and tokenised training pairs, made once and kept in `work`."""
    cache = work / CACHE
    if cache.exists():
        return TokenisedPairs.load(cache)
    assert corpus is not None
    rows = read_split(corpus / "train.parquet")
    # Summaries count twice: pieces that they use are the ones the model must write.
    texts = [text for row in rows for text in (row.text, row.summary, row.summary)]
    tokenizer = train_tokenizer(texts)
    model = transplant(tokenizer, start_folder(), TARGET_POSITION)
    save_start(work / "start", tokenizer, model)
    pairs = tokenise_pairs(Tokenizer.from_file(str(work / "start" / "tokenizer.json")), rows)
    pairs.save(cache)
    return pairs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="raydiff train summarizer",
        description="Trains the bundled summariser, or goes on from the checkpoint in --work.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--corpus", type=Path, help="directory that jobs/build_corpus.py wrote")
    add("--work", type=Path, required=True, help="directory for checkpoints, log and cache")
    add("--steps", type=int, default=0, help="train up to this step (default: only the decay)")
    add(
        "--decay", type=int, default=0, help="let the rate fall to zero over the last so many steps"
    )
    add("--threads", type=int, default=len(os.sched_getaffinity(0)))
    add("--export", type=Path, help="write the model directory from the checkpoint and stop")
    add("--average", action="store_true", help="export the moving average of the weights")
    for field in (*fields(TrainingSettings), *fields(BlockSettings)):
        if field.name != "target_position":
            name = "--" + field.name.replace("_", "-")
            add(name, type=type(field.default), default=field.default, help="training setting")
    return parser


Settings = TypeVar("Settings", TrainingSettings, BlockSettings)


def _settings(kind: type[Settings], options: argparse.Namespace) -> Settings:
    return kind(**{f.name: getattr(options, f.name) for f in fields(kind) if f.name in options})


if __name__ == "__main__":
    raise SystemExit(main())
