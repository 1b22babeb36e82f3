"""The size of a model is known before its weights are there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from raydiff.families.presets import PREFIX, PRESETS
from raydiff.models.precision import Precision, resolve_precision
from raydiff.models.sizes import model_size

CPU = torch.device("cpu")
FP32, BF16 = Precision(torch.float32), Precision(torch.bfloat16)


def test_bytes_are_those_of_the_file_but_for_its_header(tiny_checkpoint: Path) -> None:
    stored = (tiny_checkpoint / "model.safetensors").stat().st_size
    size = model_size(tiny_checkpoint, FP32)
    assert 0.9 * stored < size.weight_bytes < stored
    assert size.weight_bytes == 4 * size.parameters


def test_half_the_width_is_half_the_bytes(tiny_checkpoint: Path) -> None:
    wide, narrow = (model_size(tiny_checkpoint, p).weight_bytes for p in (FP32, BF16))
    assert wide == 2 * narrow


@pytest.mark.parametrize(
    ("preset", "billions"),
    [
        ("llada-8b", 8.02),
        ("dream-7b", 7.62),
        ("sdar-30b-a3b", 30.5),
        ("llada2-mini", 16.3),
        ("llada2-flash", 102.9),
        ("diffusiongemma-26b-a4b", 25.3),
        ("a2d-qwen3-0.6b", 0.596),
        ("modernbert-large", 0.396),
    ],
)
def test_public_shapes_have_their_published_numbers_of_parameters(
    preset: str, billions: float
) -> None:
    assert model_size(PREFIX + preset, BF16).parameters / 1e9 == pytest.approx(billions, rel=5e-3)


def test_every_preset_has_a_size() -> None:
    assert all(model_size(PREFIX + name, BF16).weight_bytes > 0 for name in PRESETS)


def test_int8_keeps_embeddings_and_head_in_the_dtype_of_activations() -> None:
    whole = model_size("random:llada-8b", BF16)
    small = model_size("random:llada-8b", Precision(torch.bfloat16, "int8"))
    ends = 2 * 126464 * 4096  # values of the embeddings and of the head
    assert small.parameters == whole.parameters
    assert small.weight_bytes == pytest.approx(2 * ends + (whole.parameters - ends), rel=2e-3)


def test_routers_and_their_corrections_stay_precise() -> None:
    narrow = model_size("random:llada2-mini", BF16)
    kept = 19 * (256 * 2048 + 256)  # in fp32, on the layers with experts
    corrections = 19 * 256  # are buffers, not parameters
    assert narrow.weight_bytes == 2 * (narrow.parameters + corrections) + 2 * kept


def test_what_a_dtype_is_depends_on_the_device_only_for_auto() -> None:
    assert resolve_precision("fp16", CPU) == Precision(torch.float16)
    assert resolve_precision("int8", CPU).weights == "int8"
