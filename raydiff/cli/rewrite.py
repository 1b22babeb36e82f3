"""`raydiff rewrite`: every document of a corpus in other words, as a template asks for."""

from __future__ import annotations

import argparse

from raydiff.cli.corpus_flags import add_corpus_arguments
from raydiff.cli.corpus_run import run_command
from raydiff.config import TaskSettings


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "rewrite",
        help="rewrite a corpus",
        description="Rewrite every document of a corpus, in plain words or as --template asks "
        "for. Long documents are rewritten in pieces, which are joined in order. Repeat the same "
        "command to continue a run that was stopped.",
    )
    add_corpus_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run or continue the job; status 1 when documents failed."""
    return run_command(args, TaskSettings(kind="rewrite"))
