"""int4 by torchao, where it is installed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from raydiff.errors import ModelError
from raydiff.models.int4 import Int4Weight, group_size
from raydiff.models.precision import resolve_precision

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def torchao() -> None:
    pytest.importorskip("torchao", reason="torchao is optional")
    try:
        resolve_precision("int4", CPU)
    except ModelError as error:
        pytest.skip(str(error))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def int4(weight: Tensor) -> Int4Weight:
    return Int4Weight.empty(weight.shape, torch.float32, CPU).store(weight)


def test_it_is_near_the_weight_it_stands_for() -> None:
    weight, inputs = drawn(64, 128), drawn(4, 128)
    exact = linear(inputs, weight)
    assert 0 < (linear(inputs, int4(weight)) - exact).norm() < 0.15 * exact.norm()


def test_dequantised_it_multiplies_the_same() -> None:
    small, inputs = int4(drawn(64, 128)), drawn(4, 128)
    assert torch.allclose(linear(inputs, small), inputs @ small.dequantized().T, atol=1e-3)


def test_a_joined_weight_gives_back_its_parts() -> None:
    one, two, inputs = int4(drawn(64, 128)), int4(-drawn(32, 128)), drawn(4, 128)
    joined = torch.cat([one, two])
    assert isinstance(joined, Int4Weight)
    assert isinstance(joined[64:], Int4Weight)
    assert torch.equal(linear(inputs, joined[64:]), linear(inputs, two))
    assert torch.equal(linear(inputs, joined)[:, :64], linear(inputs, one))
    assert not isinstance(joined[10:], Int4Weight)


def test_groups_divide_the_inputs() -> None:
    assert [group_size(shape) for shape in ((8, 256), (8, 96), (8, 50), (2, 8, 128))] == [
        128,
        32,
        None,
        None,
    ]
