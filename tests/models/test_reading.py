"""Which files of a checkpoint directory are read, and which are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from raydiff.errors import ModelError
from raydiff.models.reading import INDEX, SINGLE, read_tensors, weight_files

CPU = torch.device("cpu")


def write_index(folder: Path, *names: str) -> None:
    weight_map = {f"tensor.{i}": name for i, name in enumerate(names)}
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def test_the_shards_are_those_of_the_index(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors", "stray.safetensors"):
        save_file({name: torch.ones(1)}, tmp_path / name)
    write_index(tmp_path, "b.safetensors", "a.safetensors", "b.safetensors")
    assert [f.name for f in weight_files(tmp_path)] == ["a.safetensors", "b.safetensors"]


def test_a_shard_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_index(tmp_path, "a.safetensors")
    with pytest.raises(ModelError, match=r"a\.safetensors"):
        weight_files(tmp_path)


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/passwd", 7, ""])
def test_an_index_cannot_lead_out_of_its_directory(tmp_path: Path, name: str) -> None:
    write_index(tmp_path, name)
    with pytest.raises(ModelError, match="beside it"):
        weight_files(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}'])
def test_a_malformed_index_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(ModelError, match="weight_map"):
        weight_files(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights_are_refused_with_the_remedy(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ModelError, match=rf"{name}.*can run code.*convert"):
        weight_files(tmp_path)


@pytest.mark.parametrize("size", [0, 4, 100, 1000])
def test_a_truncated_file_is_a_model_error(tmp_path: Path, size: int) -> None:
    file = tmp_path / SINGLE
    save_file({"a": torch.ones(1000)}, file)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ModelError, match="cannot be loaded"):
        list(read_tensors(file, CPU))


def test_a_file_of_noise_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / SINGLE).write_bytes(bytes(range(256)) * 8)
    with pytest.raises(ModelError, match="cannot be loaded"):
        list(read_tensors(tmp_path / SINGLE, CPU))
