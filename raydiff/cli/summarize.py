"""`raydiff summarize`: a corpus of documents through the replicas of a model."""

from __future__ import annotations

import argparse

from raydiff.cli.corpus_flags import add_corpus_arguments
from raydiff.cli.corpus_run import run_command
from raydiff.config import TaskSettings


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "summarize",
        help="summarise a corpus",
        description="Summarise every document of a corpus. Repeat the same command to continue "
        "a run that was stopped: what is committed is not computed again.",
    )
    add_corpus_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run or continue the job; status 1 when documents failed."""
    return run_command(args, TaskSettings())
