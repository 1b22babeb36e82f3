"""The command-line form of `Decoding`, shared by every command that generates."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from raydiff.decoding import CACHE_MODES, POLICIES, Decoding


def add_decoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one flag per field of `Decoding`. What is not given is left to the model."""
    group = parser.add_argument_group("decoding", "what is left out takes the model's default")
    _number(group, "--max-tokens", int, "most tokens to generate")
    _number(group, "--min-tokens", int, "no end token before this many tokens")
    group.add_argument(
        "--ignore-eos",
        action="store_true",
        default=None,
        help="never end early: generate exactly --max-tokens",
    )
    _number(group, "--temperature", float, "0 takes the most likely token, above 0 samples")
    _number(group, "--top-p", float, "sample from the smallest set with this probability")
    _number(group, "--top-k", int, "sample from this many most likely tokens, 0 means all")
    _number(group, "--seed", int, "seed of the random generator")
    group.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help="cut the text before this string; may be repeated",
    )
    group.add_argument("--policy", choices=POLICIES, help="which positions a step commits")
    _number(group, "--steps", int, "denoising steps per block")
    _number(group, "--threshold", float, "commit every position at least this confident (0 to 1)")
    _number(group, "--block-length", int, "positions denoised together")
    group.add_argument("--cache", choices=CACHE_MODES, help="none recomputes everything each step")


def decoding_from(args: argparse.Namespace) -> Decoding:
    """The `Decoding` that the flags describe.

    Raises:
        DecodingError: a value is impossible.
    """
    names = [f.name for f in fields(Decoding)]
    given: dict[str, Any] = {name: getattr(args, name) for name in names}
    return Decoding.from_mapping(given)


def _number(group: argparse._ArgumentGroup, flag: str, kind: type, help_text: str) -> None:
    group.add_argument(flag, type=kind, metavar="N" if kind is int else "X", help=help_text)
