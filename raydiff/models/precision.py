"""Precision: the dtype of activations, and how weights are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from raydiff.errors import ModelError, invalid
from raydiff.models.int4 import Int4Weight, group_size, require_int4
from raydiff.models.int8 import Int8Weight
from raydiff.models.meta import stored_dtype
from raydiff.models.quantized import quantizable
from raydiff.models.slots import Allocate

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}
QUANTIZED: tuple[Literal["int8", "int4"], ...] = ("int8", "int4")


@dataclass(frozen=True)
class Precision:
    """How a model computes and keeps its weights."""

    activations: torch.dtype
    """Of activations and caches, and of the weights that are not quantised."""
    weights: Literal["int8", "int4"] | None = None
    """What large weights are kept in, if not in the dtype of activations."""

    @property
    def name(self) -> str:
        """Its dtype's name as the settings have it."""
        plain = next(name for name, dtype in DTYPES.items() if dtype == self.activations)
        return self.weights or plain

    def allocator(self, module: nn.Module, device: torch.device) -> Allocate:
        """Makes the tensors that take the place of a module's own."""
        small = quantizable(module) if self.weights is not None else set()

        def allocate(key: str, tensor: Tensor) -> Tensor:
            if key not in small:
                kept = stored_dtype(module, key, tensor, self.activations)
                return torch.empty(tensor.shape, dtype=kept, device=device)
            fits_int4 = self.weights == "int4" and group_size(tensor.shape) is not None
            kind = Int4Weight if fits_int4 else Int8Weight
            return kind.empty(tensor.shape, self.activations, device)

        return allocate


def resolve_precision(dtype: str, device: torch.device) -> Precision:
    """The precision of a setting.

    auto is bf16 where the device multiplies it fast, fp32 elsewhere; int8 and int4 keep the large
    weights so, and compute in what auto is.

    Raises:
        ModelError: an unknown name, or one that the device does not run.
    """
    fast = torch.bfloat16 if _fast_bf16(device) else torch.float32
    if dtype == "auto":
        return Precision(fast)
    if dtype == "int8":
        return Precision(fast, "int8")
    if dtype == "int4":
        require_int4(device, fast)
        return Precision(fast, "int4")
    if dtype not in DTYPES:
        known = ", ".join(("auto", *DTYPES, *QUANTIZED))
        raise ModelError(invalid("dtype", expected=f"one of {known}", got=dtype))
    return Precision(DTYPES[dtype])


def planned_precision(dtype: str) -> Precision:
    """The precision of a setting on a device that computes in bf16 and runs int4; raises ModelError
    for an unknown name.
    """
    if dtype in QUANTIZED:
        return Precision(torch.bfloat16, "int8" if dtype == "int8" else "int4")
    return resolve_precision("bf16" if dtype == "auto" else dtype, torch.device("cpu"))


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype of activations of a setting; raises ModelError like `resolve_precision`."""
    return resolve_precision(dtype, device).activations


def _fast_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    # Without these instructions bf16 products are emulated, slower than fp32.
    checks = (torch.cpu._is_avx512_bf16_supported, torch.cpu._is_amx_tile_supported)
    return any(check() for check in checks)
