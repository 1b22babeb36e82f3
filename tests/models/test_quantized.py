"""Quantised weights: close to the weights they stand for, and right wherever a weight is used."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import linear

from raydiff.errors import ModelError
from raydiff.models import quantized
from raydiff.models.int8 import STEPS, Int8Weight
from raydiff.models.loading import load_denoiser
from raydiff.models.precision import resolve_precision
from raydiff.models.quantized import QuantizedWeight, quantizable

CPU = torch.device("cpu")


def int8(weight: Tensor, dtype: torch.dtype = torch.float32) -> Int8Weight:
    return Int8Weight.empty(weight.shape, dtype, CPU).store(weight)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 99), st.floats(1e-6, 1e4))
def test_int8_is_within_half_a_step_of_each_outputs_own_scale(
    outputs: int, inputs: int, seed: int, size: float
) -> None:
    weight = drawn(outputs, inputs, seed=seed) * size
    step_O1 = weight.abs().amax(dim=1, keepdim=True) / STEPS
    assert ((int8(weight).dequantized() - weight).abs() <= step_O1 * 0.501).all()


def test_the_largest_weight_of_an_output_is_kept() -> None:
    weight = drawn(4, 8)
    kept = int8(weight).dequantized()
    assert torch.allclose(kept.abs().amax(dim=1), weight.abs().amax(dim=1))


def test_an_output_of_zeros_stays_zero() -> None:
    weight = torch.cat([torch.zeros(1, 8), drawn(1, 8)])
    assert torch.equal(int8(weight).dequantized()[0], torch.zeros(8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_linear_gives_what_the_dequantised_weight_gives(dtype: torch.dtype) -> None:
    weight, inputs, bias = drawn(6, 32), drawn(3, 32).to(dtype), drawn(6).to(dtype)
    small = int8(weight, dtype)
    exact = linear(inputs.double(), small.codes * small.scales.double()[:, None], bias.double())
    assert linear(inputs, small, bias).dtype == dtype
    bound = 4 * torch.finfo(dtype).eps * exact.abs().max().item()
    assert (linear(inputs, small, bias).double() - exact).abs().max() <= bound


def test_large_activations_do_not_overflow_fp16() -> None:
    weight, inputs = torch.full((1, 256), 1e-3), torch.full((1, 256), 100.0, dtype=torch.float16)
    assert linear(inputs, int8(weight, torch.float16)).item() == pytest.approx(25.6, rel=1e-2)


def test_a_module_takes_it_as_its_parameter() -> None:
    layer, weight = nn.Linear(32, 6), drawn(6, 32)
    layer.weight = nn.Parameter(int8(weight), requires_grad=False)
    expected = linear(drawn(2, 32), int8(weight).dequantized(), layer.bias)
    with torch.inference_mode():
        assert torch.allclose(layer(drawn(2, 32)), expected, atol=1e-5)


OPERATIONS: dict[str, Any] = {
    "product": lambda w: drawn(3, 32) @ w.T,
    "sum": lambda w: w + 1,
    "transpose": lambda w: w.transpose(0, 1).contiguous(),
    "one row": lambda w: w[2],
    "a column": lambda w: w[:, 3],
    "other dtype": lambda w: w.to(torch.float64),
    "with a plain one": lambda w: torch.cat([w, drawn(1, 32)]),
    "joined sideways": lambda w: torch.cat([w, w], dim=1),
    "stacked": lambda w: torch.stack([w, w]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_whatever_else_is_done_with_it_sees_a_plain_weight(name: str) -> None:
    small = int8(drawn(6, 32))
    answer = OPERATIONS[name](small)
    assert not isinstance(answer, QuantizedWeight)
    assert torch.allclose(answer, OPERATIONS[name](small.dequantized()))


def test_rows_and_joined_weights_stay_quantised() -> None:
    one, two = int8(drawn(4, 8)), int8(drawn(2, 8, seed=1))
    joined = torch.cat([one, two])
    assert isinstance(joined, Int8Weight)
    assert isinstance(joined[4:], Int8Weight)
    assert torch.equal(joined[4:].dequantized(), two.dequantized())


def test_experts_are_written_part_by_part_and_read_one_by_one() -> None:
    weight = drawn(3, 4, 8)
    small = Int8Weight.empty(weight.shape, torch.float32, CPU)
    for expert in range(3):
        small[expert].narrow(0, 0, 2).copy_(weight[expert, :2])
        small[expert].narrow(0, 2, 2).copy_(weight[expert, 2:])
    assert torch.equal(small.dequantized(), int8(weight).dequantized())
    assert isinstance(small[torch.tensor(1)], Int8Weight)
    expected = linear(drawn(2, 8), small.dequantized()[1])
    assert torch.allclose(linear(drawn(2, 8), small[1]), expected, atol=1e-5)


class Body(nn.Module):
    """A large matrix, a small one, stacked experts, embeddings and a head tied to them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(512, 128)
        self.head = nn.Linear(128, 512, bias=False)
        self.head.weight = self.embed.weight
        self.large, self.small = nn.Linear(128, 256), nn.Linear(8, 8)
        self.experts = nn.Parameter(torch.zeros(4, 64, 128))
        self.router = nn.Parameter(torch.zeros(256, 128))


def test_large_matrices_and_experts_are_quantised_and_nothing_else() -> None:
    assert quantizable(Body()) == {"large.weight", "experts"}


def test_the_head_stays_as_it_is() -> None:
    module = load_denoiser("random:tiny-llada", "cpu", "fp32").module
    quantized_keys = quantizable(module)
    assert "lm_head.weight" not in quantized_keys
    assert not any("embed" in key for key in quantized_keys)


FORWARD = ("tiny-llada", "tiny-sdar-moe", "tiny-llada2", "tiny-bert", "tiny-modernbert")


def logits(preset: str, dtype: str) -> Tensor:
    denoiser = load_denoiser(f"random:{preset}", "cpu", dtype)
    tokens_BL = torch.arange(12).view(2, 6)
    positions_BL = torch.arange(6).expand(2, 6)
    with torch.inference_mode():
        hidden_BLD, _ = denoiser.forward(tokens_BL, positions_BL, None, None, False)
        return denoiser.logits(hidden_BLD.flatten(0, 1)).float()


@pytest.mark.parametrize("preset", FORWARD)
def test_a_whole_model_changes_little(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized, "SMALLEST", 1)
    exact, small = logits(preset, "bf16"), logits(preset, "int8")
    assert 0 < (small - exact).norm() < 0.05 * exact.norm()


def test_int8_computes_in_what_auto_is() -> None:
    assert resolve_precision("int8", CPU).activations == resolve_precision("auto", CPU).activations


def test_int4_without_torchao_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    with pytest.raises(ModelError, match=r"torchao.*pip install .*int4.*, or choose int8"):
        load_denoiser("random:tiny-llada", "cpu", "int4")


def test_int4_that_the_device_does_not_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(weight: Tensor) -> Tensor:
        raise NotImplementedError("no kernel")

    monkeypatch.setattr("raydiff.models.int4.pack", refuse)
    with pytest.raises(ModelError, match=r"torchao runs on cpu.*no kernel"):
        resolve_precision("int4", CPU)
