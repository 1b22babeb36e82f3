"""`raydiff train`: makes the small denoisers that ship with the package, or your own."""

from __future__ import annotations

import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("train", help="train a small denoiser")
    recipes = parser.add_subparsers(dest="recipe", required=True, metavar="RECIPE")
    summarizer = recipes.add_parser(
        "summarizer",
        help="the block-diffusion summarizer (--help lists its settings)",
        add_help=False,
        prefix_chars="\0",  # its own parser reads the flags
    )
    summarizer.add_argument("rest", nargs="*")


def run(args: argparse.Namespace) -> int:
    """Hand the rest of the command line to the recipe."""
    from raydiff.train import summarizer

    return summarizer.main(args.rest)
