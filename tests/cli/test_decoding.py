"""The command line's decoding flags are `Decoding`'s fields."""

from __future__ import annotations

import argparse
from dataclasses import fields

import pytest

from raydiff.cli.decoding import add_decoding_arguments, decoding_from
from raydiff.errors import DecodingError
from raydiff.request import Decoding


def _parse(*arguments: str) -> Decoding:
    parser = argparse.ArgumentParser()
    add_decoding_arguments(parser)
    return decoding_from(parser.parse_args(arguments))


def test_what_is_not_given_is_left_to_the_model() -> None:
    assert _parse() == Decoding()


def test_every_field_of_decoding_has_its_flag() -> None:
    given = {
        "max_tokens": 40,
        "min_tokens": 2,
        "ignore_eos": True,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "seed": 3,
        "stop": ("a", "b c"),
        "policy": "threshold",
        "steps": 4,
        "threshold": 0.75,
        "block_length": 16,
        "cache": "none",
    }
    assert given.keys() == {f.name for f in fields(Decoding)}
    arguments: list[str] = []
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(flag)
        else:
            for part in value if isinstance(value, tuple) else (value,):
                arguments += [flag, str(part)]
    assert _parse(*arguments) == Decoding(**given)


@pytest.mark.parametrize(
    ("arguments", "param"),
    [(["--steps", "0"], "steps"), (["--threshold", "2"], "threshold"), (["--top-p", "0"], "top_p")],
)
def test_an_impossible_value_is_refused_by_name(arguments: list[str], param: str) -> None:
    with pytest.raises(DecodingError, match=f"^{param}: expected") as caught:
        _parse(*arguments)
    assert caught.value.param == param
