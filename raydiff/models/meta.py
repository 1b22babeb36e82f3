"""Modules without memory: made on the meta device, given tensors afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from raydiff.models.networks import NetworkKind


def on_meta(network: NetworkKind, config: Mapping[str, Any]) -> nn.Module:
    """The module of a stock config with shapes and no values."""
    with torch.device("meta"):
        return network.build(config)


def stored_dtype(module: nn.Module, key: str, tensor: Tensor, dtype: torch.dtype) -> torch.dtype:
    """What a tensor of a module that computes in `dtype` is kept in.

    Integers stay what they are; what the module's author wants precise (a router, say) stays fp32.
    """
    if not tensor.is_floating_point():
        return tensor.dtype
    return torch.float32 if _is_precise(module, key) else dtype


def recompute_buffers(module: nn.Module, device: torch.device) -> None:
    """Give the buffers that no checkpoint holds (rotary frequencies, position ids) their values.

    Everything else of the module must have its values already, and keeps them.
    """
    owners = [m for m in module.modules() if m._non_persistent_buffers_set]
    if not owners:
        return
    assert isinstance(module, PreTrainedModel), "a module that recomputes buffers initialises them"
    # transformers initialises what does not carry this mark
    for part in module.modules():
        part._is_hf_initialized = not part._non_persistent_buffers_set
    for tensor in (*module.parameters(), *module.buffers()):
        tensor._is_hf_initialized = True
    for owner in owners:
        for name in owner._non_persistent_buffers_set:
            meta = owner._buffers[name]
            if meta is not None:
                owner._buffers[name] = torch.empty_like(meta, device=device)
    module.initialize_weights()


def _is_precise(module: nn.Module, key: str) -> bool:
    names = getattr(module, "_keep_in_fp32_modules_strict", None) or ()
    return any(f".{name}." in f".{key}." for name in names)
