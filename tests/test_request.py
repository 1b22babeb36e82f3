"""Decoding parameters: impossible values are refused by name, never clamped."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from raydiff.errors import DecodingError
from raydiff.request import Decoding, Usage


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("steps", 1.5),
        ("steps", True),
        ("threshold", 2),
        ("threshold", -0.1),
        ("threshold", "high"),
        ("max_tokens", 0),
        ("max_tokens", "ten"),
        ("min_tokens", -1),
        ("block_length", 0),
        ("temperature", -1),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("seed", -1),
        ("seed", 2**63),
        ("stop", ""),
        ("stop", [1]),
        ("stop", ["x"] * 17),
        ("stop", ["x" * 1025]),
        ("policy", "magic"),
        ("cache", "magic"),
        ("ignore_eos", "yes"),
    ],
)
def test_an_impossible_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(DecodingError) as caught:
        Decoding(**{name: value})
    assert caught.value.param == name
    assert str(caught.value).startswith(f"{name}: expected")


def test_values_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(DecodingError, match="min_tokens"):
        Decoding(max_tokens=4, min_tokens=5)
    with pytest.raises(DecodingError, match="threshold"):
        Decoding(policy="quota", threshold=0.5)


def test_a_loop_begins_before_it_ends() -> None:
    """Times run from 1 down to 0."""
    Decoding(policy="remask", loop_from=0.5, loop_to=0.5)
    with pytest.raises(DecodingError, match="loop_to"):
        Decoding(policy="remask", loop_from=0.2, loop_to=0.5)


def test_one_stop_string_is_a_list_of_one() -> None:
    assert Decoding(stop="END").stop == ("END",)  # type: ignore[arg-type]


def test_from_mapping_takes_null_as_absent_and_refuses_unknown_names() -> None:
    assert Decoding.from_mapping({"steps": None, "seed": 3}) == Decoding(seed=3)
    with pytest.raises(DecodingError, match="setps"):
        Decoding.from_mapping({"setps": 3})


def test_errors_survive_the_way_between_processes() -> None:
    with pytest.raises(DecodingError) as caught:
        Decoding(steps=0)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.param) == (str(caught.value), "steps")


def test_tokens_per_forward() -> None:
    assert Usage(prompt_tokens=1, completion_tokens=12, forwards=4).tokens_per_forward == 3.0
    assert Usage(prompt_tokens=1, completion_tokens=0, forwards=0).tokens_per_forward == 0.0
