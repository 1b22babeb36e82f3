"""Which cases a run has."""

from __future__ import annotations

import pytest

from raydiff.bench.serving.settings import Case, ServeBench
from raydiff.errors import UsageError


def test_contenders_take_turns_next_to_each_other_under_each_load() -> None:
    bench = ServeBench(input="x", contenders=("engine", "http"), clients=(1, 16))
    assert [(c.contender, c.clients) for c in bench.cases()] == [
        ("engine", 1),
        ("http", 1),
        ("engine", 16),
        ("http", 16),
    ]


def test_rates_take_the_place_of_clients() -> None:
    bench = ServeBench(input="x", contenders=(), urls=("http://a",), rates=(2.0, 4.0))
    assert [(c.contender, c.clients, c.rate_per_s) for c in bench.cases()] == [
        ("http://a", 0, 2.0),
        ("http://a", 0, 4.0),
    ]


def test_a_turn_takes_each_document_once_and_four_requests_a_client_at_least() -> None:
    bench = ServeBench(input="x", documents=100)
    assert bench.requests_of(Case(contender="http", clients=2, prompts_per_request=8)) == 13
    assert bench.requests_of(Case(contender="http", clients=64)) == 256


def test_the_warm_up_leaves_at_least_one_request() -> None:
    bench = ServeBench(input="x", requests=5, warm_up=50)
    assert bench.warm_up_of(Case(contender="http", clients=64)) == 4


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"contenders": ("https",)}, "contenders"),
        ({"clients": (1, 0)}, "clients"),
        ({"prompts_per_request": (0,)}, "prompts-per-request"),
        ({"rounds": 0}, "rounds"),
        ({"warm_up": -1}, "warm-up"),
        ({"contenders": ("bare",), "stream": True}, "contenders"),
        ({"contenders": ("bare",), "rates": (1.0,)}, "contenders"),
    ],
)
def test_impossible_settings_are_refused_by_name(fields: dict[str, object], param: str) -> None:
    with pytest.raises(UsageError) as error:
        ServeBench(input="x", **fields)  # type: ignore[arg-type]  # what is wrong is the test
    assert error.value.param == param
