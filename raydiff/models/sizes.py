"""How large a model is, from its config alone: no download, no memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from raydiff.families import family_of, load_source
from raydiff.models.loading import build_module
from raydiff.models.precision import Precision
from raydiff.models.quantized import QuantizedWeight
from raydiff.models.slots import open_slots


@dataclass(frozen=True)
class Size:
    """What a model takes."""

    parameters: int
    """Tied ones counted once."""
    weight_bytes: int


def model_size(path_or_name: str | Path, precision: Precision) -> Size:
    """The size of a checkpoint directory, a bundled model or a preset at a precision.

    Raises:
        ModelError: it is missing, its config is unreadable or its family unknown.
    """
    source = load_source(path_or_name)
    module = build_module(family_of(source.config, source.name), source)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    slots = open_slots(module, precision.allocator(module, torch.device("meta"))).all()
    return Size(parameters, sum(_bytes(slot.tensor) for slot in slots))


def _bytes(tensor: Tensor) -> int:
    return tensor.bytes() if isinstance(tensor, QuantizedWeight) else tensor.nbytes
