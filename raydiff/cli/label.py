"""`raydiff label`: for every document of a corpus the one of given labels that fits it best."""

from __future__ import annotations

import argparse
from pathlib import Path

from raydiff.cli.corpus_flags import add_corpus_arguments
from raydiff.cli.corpus_run import run_command
from raydiff.config import TaskSettings
from raydiff.errors import UsageError, invalid


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "label",
        help="choose a label for each document of a corpus",
        description="Give every document of a corpus the one of the labels that fits it best: no "
        "other text can come out. The output has the columns label and label_probability. Repeat "
        "the same command to continue a run that was stopped.",
    )
    labels = parser.add_mutually_exclusive_group(required=True)
    labels.add_argument("--labels", metavar="A,B,...", help="the labels, between commas")
    labels.add_argument(
        "--labels-file",
        metavar="FILE",
        help="a file with one label a line: for many labels, or labels with commas",
    )
    add_corpus_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run or continue the job; status 1 when documents failed."""
    return run_command(args, TaskSettings(kind="label", labels=labels_from(args)))


def labels_from(args: argparse.Namespace) -> tuple[str, ...]:
    """The labels that the flags name, in order, without white space around them.

    Raises:
        UsageError: the file cannot be read.
    """
    if args.labels is not None:
        return tuple(label.strip() for label in args.labels.split(","))
    try:
        lines = Path(args.labels_file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        expected = "a file of text with one label a line"
        message = invalid(
            "--labels-file", expected=expected, got=args.labels_file, remedy=f"{error}."
        )
        raise UsageError(message, "labels_file") from error
    return tuple(line.strip() for line in lines if line.strip())
