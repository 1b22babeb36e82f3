"""What a simulated model's name declares."""

from __future__ import annotations

import pytest

from raydiff.errors import ModelError
from raydiff.families import load_spec
from raydiff.simulated import simulated_model


def test_the_declared_point_is_how_long_so_many_rows_take() -> None:
    model = simulated_model("simulated:32x16=0.5s")
    whole_rows = 32 * model.block_length
    assert model.denoise_s(whole_rows) * 16 == pytest.approx(0.5)


def test_a_forward_takes_no_longer_up_to_the_ridge_and_then_grows_with_its_positions() -> None:
    model = simulated_model("simulated:32x16=320ms,ridge=8")
    row = model.block_length
    assert model.denoise_s(row) == model.denoise_s(8 * row) == pytest.approx(0.005)
    assert model.denoise_s(16 * row) == pytest.approx(0.010)
    assert model.denoise_s(32 * row) == pytest.approx(0.020)


def test_a_prompt_costs_its_arithmetic_and_at_least_what_encode_says() -> None:
    model = simulated_model("simulated:1x1=32ms,encode=5ms")
    assert model.encode_s(1) == pytest.approx(0.005)
    assert model.encode_s(64) == pytest.approx(0.064)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("simulated:", "ROWSxFORWARDS=SECONDSs"),
        ("simulated:fast", "ROWSxFORWARDS=SECONDSs"),
        ("simulated:0x16=1s", "above 0"),
        ("simulated:32x16=0.5", "seconds"),
        ("simulated:32x16=-1s", "seconds"),
        ("simulated:32x16=nans", "seconds"),
        ("simulated:32x16=1s,tokns=3", "tokens"),
        ("simulated:32x16=1s,tokens=3,tokens=4", "once"),
        ("simulated:32x16=1s,load=3", "seconds"),
        ("simulated:32x16=1s,block=x", "number"),
        ("simulated:32x16=1s,block=8", "at least as many positions"),
        ("simulated:32x16=1s,context=0", "at least 1"),
        ("simulated:32x16=1s,tokens=0.5", "at least 1"),
    ],
)
def test_a_malformed_name_is_refused_with_what_is_wrong(name: str, wrong: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_spec(name)
    assert wrong in str(caught.value)
    assert name in str(caught.value)


def test_the_name_and_the_family_say_that_it_is_simulated() -> None:
    spec = load_spec("simulated:32x16=0.5s")
    assert (spec.name, spec.family) == ("simulated:32x16=0.5s", "simulated")
    assert spec.policies() == ("quota", "threshold")
