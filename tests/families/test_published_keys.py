"""A checkpoint that lacks, adds or distorts a tensor is refused with the tensor's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from raydiff.errors import ModelError
from raydiff.models.loading import load_denoiser
from tests.families.tiny import TINY, Tiny

INDEX = "model.safetensors.index.json"


@pytest.fixture(params=TINY, ids=lambda tiny: tiny.name)
def tiny(request: pytest.FixtureRequest) -> Tiny:
    made: Tiny = request.param
    return made


def rewrite(folder: Path, key: str, tensor: Tensor | None) -> None:
    """Replace, add or (None) remove one tensor of a saved checkpoint."""
    index = json.loads((folder / INDEX).read_text())
    files = index["weight_map"]
    file = folder / files.get(key, next(iter(files.values())))
    tensors = load_file(file)
    tensors.pop(key, None)
    if tensor is not None:
        tensors[key] = tensor
        files[key] = file.name
    else:
        del files[key]
    save_file(tensors, file)
    (folder / INDEX).write_text(json.dumps(index))


def projection(tiny: Tiny) -> str:
    """The published key of an MLP's output, an expert's where there are any."""
    keys = [key for key in tiny.shapes if key.endswith(("down_proj.weight", "ff_out.weight"))]
    return keys[-1]


def test_a_missing_tensor_is_named(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny.save(tmp_path)
    rewrite(folder, projection(tiny), None)
    with pytest.raises(ModelError, match=r"missing: .*down_proj"):
        load_denoiser(folder, device="cpu", dtype="fp32")


def test_an_extra_tensor_is_named(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny.save(tmp_path)
    rewrite(folder, "model.layers.0.surprise", torch.zeros(2))
    with pytest.raises(ModelError, match=r"unexpected: model\.layers\.0\.surprise"):
        load_denoiser(folder, device="cpu", dtype="fp32")


def test_a_misshaped_tensor_is_named(tiny: Tiny, tmp_path: Path) -> None:
    folder, key = tiny.save(tmp_path), projection(tiny)
    rewrite(folder, key, torch.zeros(3, 5))
    with pytest.raises(ModelError, match=rf"another shape: {key}"):
        load_denoiser(folder, device="cpu", dtype="fp32")
