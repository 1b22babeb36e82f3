"""The command-line form of `Decoding`, shared by every command that generates."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from raydiff.decoding import CHOICES, Choice, Decoding, policies_of

_CACHE = ("cache", "refresh_steps", "window")
_GENERAL = ("steps",)
"""Not listed by policy, because most policies read it."""
_SWITCHES = {f.name for f in fields(Decoding) if f.default is False}
"""Settings that are off unless asked for; the others of their kind may also be turned off."""


def add_decoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one flag per field of `Decoding`. What is not given is left to the model."""
    general = parser.add_argument_group("decoding", "what is left out takes the model's default")
    policy = parser.add_argument_group(
        "decoding by policy", "the policies that read a flag stand in brackets"
    )
    cache = parser.add_argument_group("decoding with caches")
    for name, choice in CHOICES.items():
        readers = [] if name in _GENERAL else policies_of(name)
        group = cache if name in _CACHE else policy if readers else general
        _add_flag(group, name, choice, readers)
    general.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help="cut the text before this string; may be repeated",
    )


def decoding_from(args: argparse.Namespace) -> Decoding:
    """The `Decoding` that the flags describe.

    Raises:
        DecodingError: a value is impossible.
    """
    names = [f.name for f in fields(Decoding)]
    given: dict[str, Any] = {name: getattr(args, name) for name in names}
    return Decoding.from_mapping(given)


def _add_flag(
    group: argparse._ArgumentGroup, name: str, choice: Choice, readers: list[str]
) -> None:
    flag = "--" + name.replace("_", "-")
    help_text = choice.help.replace("%", "%%")
    if readers:
        help_text += f" [{', '.join(readers)}]"
    if choice.of:
        group.add_argument(flag, choices=choice.of, help=help_text)
    elif choice.kind is bool:
        action = "store_true" if name in _SWITCHES else argparse.BooleanOptionalAction
        group.add_argument(flag, action=action, default=None, help=help_text)
    else:
        metavar = "N" if choice.kind is int else "X"
        group.add_argument(flag, type=choice.kind, metavar=metavar, help=help_text)
