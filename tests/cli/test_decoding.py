"""The command line's decoding flags are `Decoding`'s fields."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

import pytest

from raydiff.cli.decoding import add_decoding_arguments, decoding_from
from raydiff.decoding import CHOICES, policies_of
from raydiff.errors import DecodingError
from raydiff.request import Decoding


def _parse(*arguments: str) -> Decoding:
    parser = argparse.ArgumentParser()
    add_decoding_arguments(parser)
    return decoding_from(parser.parse_args(arguments))


def test_what_is_not_given_is_left_to_the_model() -> None:
    assert _parse() == Decoding()


def _example(name: str) -> Any:
    if name == "stop":
        return ("a", "b c")
    choice = CHOICES[name]
    if choice.of:
        return choice.of[-1]
    return {bool: True, int: 2, float: 0.5}[choice.kind]


@pytest.mark.parametrize("name", [f.name for f in fields(Decoding)])
def test_every_field_of_decoding_has_its_flag(name: str) -> None:
    value = _example(name)
    flag = "--" + name.replace("_", "-")
    if value is True:
        arguments = [flag]
    else:
        parts = value if isinstance(value, tuple) else (value,)
        arguments = [word for part in parts for word in (flag, str(part))]
    assert _parse(*arguments) == Decoding(**{name: value})


def test_flags_of_one_policy_go_together() -> None:
    decoding = _parse("--policy", "edit", "--threshold", "0.75", "--max-edits", "3", "--steps", "4")
    assert decoding == Decoding(policy="edit", threshold=0.75, max_edits=3, steps=4)


def test_what_a_model_may_do_by_default_can_be_switched_off() -> None:
    assert _parse("--no-clamp").clamp is False


def test_the_help_says_which_policies_read_a_setting() -> None:
    parser = argparse.ArgumentParser()
    add_decoding_arguments(parser)
    shown = " ".join(parser.format_help().split())
    for name in ("threshold", "eta", "rounding"):
        assert f"[{', '.join(policies_of(name))}]" in shown


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        (["--steps", "0"], "steps"),
        (["--threshold", "2"], "threshold"),
        (["--top-p", "0"], "top_p"),
        (["--policy", "quota", "--eta", "0.1"], "eta"),
        (["--solver-order", "4"], "solver_order"),
    ],
)
def test_an_impossible_value_is_refused_by_name(arguments: list[str], param: str) -> None:
    with pytest.raises(DecodingError, match=f"^{param}: expected") as caught:
        _parse(*arguments)
    assert caught.value.param == param
