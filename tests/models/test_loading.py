"""Loading a checkpoint directory: what is refused, and how it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from raydiff.errors import ModelError
from raydiff.models.loading import (
    load_denoiser,
    random_denoiser,
    resolve_device,
    resolve_dtype,
)
from raydiff.train.checkpoint import RAYDIFF_SECTION


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A tiny model's directory, as the trainer writes one."""
    denoiser = random_denoiser(target_position=448, block_length=16)
    denoiser.model.save_pretrained(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    config["raydiff"] = RAYDIFF_SECTION
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_directory_loads_with_the_dtype_asked_for(checkpoint: Path) -> None:
    assert load_denoiser(checkpoint, "cpu", "fp32").dtype == torch.float32
    assert load_denoiser(str(checkpoint), "cpu", "bf16").dtype == torch.bfloat16


def test_a_loaded_model_computes_what_was_saved(checkpoint: Path) -> None:
    tokens_BL, positions_BL = torch.tensor([[1, 5, 6, 2]]), torch.arange(4)[None]
    saved = random_denoiser(target_position=448, block_length=16)
    loaded = load_denoiser(checkpoint, "cpu", "fp32")
    expected_BLD, _ = saved.forward(tokens_BL, positions_BL, None, None, False)
    hidden_BLD, _ = loaded.forward(tokens_BL, positions_BL, None, None, False)
    assert torch.allclose(hidden_BLD, expected_BLD, atol=1e-6)


def test_missing_weights_are_named(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_denoiser(checkpoint, "cpu", "fp32")


def test_pickled_weights_are_refused(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    with pytest.raises(ModelError, match="refused"):
        load_denoiser(checkpoint, "cpu", "fp32")


def test_truncated_weights_are_a_model_error(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_denoiser(checkpoint, "cpu", "fp32")


def test_an_unknown_name_lists_the_bundled_ones() -> None:
    with pytest.raises(ModelError, match="summarizer"):
        load_denoiser("no-such-model")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", ""])
def test_a_device_this_machine_lacks_is_refused(device: str) -> None:
    with pytest.raises(ModelError, match="device"):
        resolve_device(device)


def test_a_dtype_is_automatic_or_one_of_three() -> None:
    cpu = torch.device("cpu")
    assert resolve_dtype("auto", cpu) in (torch.bfloat16, torch.float32)
    assert resolve_dtype("fp32", cpu) == torch.float32
    with pytest.raises(ModelError, match="bf16"):
        resolve_dtype("float64", cpu)


def test_random_models_repeat_for_their_seed() -> None:
    first, again, other = (random_denoiser(seed=seed) for seed in (1, 1, 2))
    weights = [d.model.bert.embeddings.word_embeddings.weight for d in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
