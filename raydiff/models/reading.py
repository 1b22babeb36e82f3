"""Reads the tensors of a checkpoint directory one by one: safetensors only, which hold no code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from raydiff.errors import ModelError, invalid

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint: one, or the shards that its index lists.

    Raises:
        ModelError: there are none, an index is malformed, or a shard of it is not there.
    """
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return _shards(folder)
    raise ModelError(
        invalid(str(folder), expected=f"weights in {SINGLE} or {INDEX}", got=_found(folder))
        + " Weights in other formats can run code when they are loaded and are refused; convert "
        "them with safetensors.torch.save_file."
    )


def read_tensors(file: Path, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Each tensor of a file with its key, in the order in which they lie, on a device.

    On a CPU a tensor is a view of the file's memory map, not to be kept.

    Raises:
        ModelError: the file is truncated or is no safetensors file.
    """
    try:
        with safe_open(file, framework="pt", device=str(device)) as tensors:
            for key in tensors.offset_keys():
                yield key, tensors.get_tensor(key)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file}: the weights cannot be loaded: {error}.") from error


def _shards(folder: Path) -> list[Path]:
    index = folder / INDEX
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index}: expected a weight_map of keys to files: {error!r}.") from error
    for name in names:
        # a name with a folder in it could lead out of the checkpoint
        if not isinstance(name, str) or not name or Path(name).name != name:
            raise ModelError(invalid(str(index), expected="names of files beside it", got=name))
        if not (folder / name).is_file():
            remedy = "Download the checkpoint again: a shard is missing."
            raise ModelError(
                invalid(str(index), expected=f"a file {name}", got="no such file", remedy=remedy)
            )
    return [folder / name for name in names]


def _found(folder: Path) -> list[str] | str:
    names = sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern))
    return names or "no weights"
