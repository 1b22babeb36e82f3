"""`raydiff train`: makes the small denoisers that ship with the package, or your own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Recipe:
    """A way to train one kind of denoiser."""

    module: str
    """Its `main(argv)`, or `main(kind, argv)` where recipes share it, reads the flags."""
    help: str
    shared: bool = True


RECIPES: dict[str, Recipe] = {
    "summarizer": Recipe(
        "raydiff.train.summarizer", "block diffusion, from a pretrained start", shared=False
    ),
    "masked": Recipe(
        "raydiff.train.small", "absorbing noise, full attention over prompt and answer"
    ),
    "discrete-flow": Recipe(
        "raydiff.train.small", "discrete flow matching from masks, prompt encoded once"
    ),
    "uniform": Recipe("raydiff.train.small", "uniform noise after D3PM, prompt encoded once"),
    "diffuseq": Recipe(
        "raydiff.train.embedding_kinds", "noise on embeddings, prompt and answer in one sequence"
    ),
    "diffusion-lm": Recipe(
        "raydiff.train.embedding_kinds",
        "noise on embeddings, predicted; cross-attention to prompts",
    ),
    "flow": Recipe("raydiff.train.embedding_kinds", "flow matching on embeddings"),
}
"""By the name on the command line."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "train",
        help="train a small denoiser",
        description="Train a small denoiser. `raydiff train RECIPE --help` lists its settings.",
    )
    recipes = parser.add_subparsers(dest="recipe", required=True, metavar="RECIPE")
    for name, recipe in RECIPES.items():
        # its own parser reads the flags, --help included
        own = recipes.add_parser(name, help=recipe.help, add_help=False, prefix_chars="\0")
        own.add_argument("rest", nargs="*")


def run(args: argparse.Namespace) -> int:
    """Hand the rest of the command line to the recipe."""
    recipe = RECIPES[args.recipe]
    main: Callable[..., int] = import_module(recipe.module).main
    return main(args.recipe, args.rest) if recipe.shared else main(args.rest)
