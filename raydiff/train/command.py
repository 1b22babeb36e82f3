"""The command line that all recipes share: flags, the work directory, resuming and export."""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from tokenizers import Tokenizer

from raydiff.train.debian import Pair
from raydiff.train.tokenizer import SMALL_VOCAB_SIZE, train_tokenizer
from raydiff.train.trainer import Trainer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Settings = TypeVar("Settings", bound=DataclassInstance)

CACHE = "train.npz"
"""Tokenised training pairs, in the work directory."""


def parser_of(
    name: str,
    description: str,
    settings: Sequence[DataclassInstance],
    *,
    threads: int = 1,
    left_out: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """The flags of every recipe, and one for each field of `settings` that is not left out."""
    parser = argparse.ArgumentParser(
        prog=f"raydiff train {name}",
        description=f"{description}, or goes on from the checkpoint in --work.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--corpus", type=Path, help="directory that jobs/build_corpus.py wrote")
    add("--work", type=Path, required=True, help="directory for checkpoints, log and cache")
    add("--steps", type=int, default=0, help="train up to this step (default: only the decay)")
    add("--decay", type=int, default=0, help="let the rate fall to zero over the last N steps")
    add("--threads", type=int, default=threads)
    add("--export", type=Path, help="write the model directory from the checkpoint and stop")
    add("--average", action="store_true", help="export the moving average of the weights")
    for defaults in settings:
        for field in fields(defaults):
            if field.name not in left_out:
                _add_setting(parser, field.name, getattr(defaults, field.name))
    return parser


def _add_setting(parser: argparse.ArgumentParser, name: str, default: Any) -> None:
    flag = "--" + name.replace("_", "-")
    if isinstance(default, bool):
        action = argparse.BooleanOptionalAction
        parser.add_argument(flag, action=action, default=default, help="training setting")
    else:
        parser.add_argument(flag, type=type(default), default=default, help="training setting")


def add_small_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of recipes with a small tokenizer of their own."""
    add = parser.add_argument
    add("--dtype", choices=("bf16", "fp32"), default="bf16", help="dtype of the forward")
    add("--tokenizer", type=Path, help="tokenizer.json to use instead of training one")
    add("--vocab-size", type=int, default=SMALL_VOCAB_SIZE, help="pieces of a tokenizer made here")


def small_tokenizer(options: argparse.Namespace, rows: Sequence[Pair]) -> Tokenizer:
    """The tokenizer that the flags name, else one trained on the pairs, lower-cased."""
    if options.tokenizer is not None:
        return Tokenizer.from_file(str(options.tokenizer))
    return train_tokenizer(texts_of(rows), options.vocab_size, lower=True)


def texts_of(rows: Sequence[Pair]) -> list[str]:
    """What a tokenizer learns from. Summaries count twice: the model must write their pieces."""
    return [text for row in rows for text in (row.text, row.summary, row.summary)]


def settings_of(defaults: Settings, options: argparse.Namespace) -> Settings:
    """The settings that the flags give, over `defaults`."""
    given = {f.name: getattr(options, f.name) for f in fields(defaults) if f.name in options}
    return replace(defaults, **given)


def save_settings(work: Path, facts: Mapping[str, Any]) -> None:
    """Keep what a run was made with, beside its checkpoint."""
    (work / "settings.json").write_text(json.dumps(facts, indent=2))


def run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    export: Callable[[Path, Path, bool], None],
    make_trainer: Callable[[argparse.Namespace], Trainer[Any]],
) -> int:
    """Export, or train to the step that the flags name; returns the exit status.

    `export` takes the work directory, the model directory and whether to average.
    """
    options = parser.parse_args(argv)
    torch.set_num_threads(1)  # each of the trainer's workers is one thread
    work: Path = options.work
    work.mkdir(parents=True, exist_ok=True)
    if options.export is not None:
        export(work, options.export, options.average)
        return 0
    if not (options.steps or options.decay):
        parser.error("--steps or --decay: expected how far to train, got neither")
    if options.corpus is None and not (work / CACHE).exists():
        parser.error("--corpus: expected a directory made by jobs/build_corpus.py, got none")
    (work / "pid").write_text(str(os.getpid()))
    trainer = make_trainer(options)
    if (work / "checkpoint.pt").exists():
        trainer.load(work / "checkpoint.pt")
    signal.signal(signal.SIGTERM, lambda *_: trainer.stop())
    trainer.run(options.steps or trainer.step + options.decay, options.decay)
    return 0
