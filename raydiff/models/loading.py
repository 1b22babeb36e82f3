"""Loads checkpoint directories: safetensors only, no code from the checkpoint.

The module is made without memory, its weights are allocated on the device in the dtype asked for,
and the checkpoint's tensors are streamed into them one by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn

from raydiff.errors import ModelError, invalid
from raydiff.families import Family, Source, family_of, load_source, load_spec, model_path
from raydiff.families.presets import is_random
from raydiff.models.denoiser import Denoiser
from raydiff.models.filling import fill_from
from raydiff.models.keys import KeyMap
from raydiff.models.meta import on_meta, recompute_buffers
from raydiff.models.networks import NETWORKS
from raydiff.models.precision import resolve_dtype as resolve_dtype
from raydiff.models.precision import resolve_precision
from raydiff.models.quantized import run_experts_one_by_one
from raydiff.models.random import fill_randomly
from raydiff.models.random import random_denoiser as random_denoiser
from raydiff.models.slots import open_slots


def load_denoiser(path_or_name: str | Path, device: str = "auto", dtype: str = "auto") -> Denoiser:
    """A checkpoint directory, a bundled model by name or a preset with random weights, ready to
    run.

    `device` is auto (CUDA where there is one), cpu, cuda or cuda:N; `dtype` is that of
    `resolve_precision`. Models over embeddings are a `LatentDenoiser`.

    Raises:
        ModelError: no such model, an unknown family, weights that are missing, unreadable or do
            not fit the config, no such device or dtype.
    """
    source, spec = load_source(path_or_name), load_spec(path_or_name)
    family = family_of(source.config, source.name)
    where = resolve_device(device)
    precision = resolve_precision(dtype, where)
    module = build_module(family, source)
    slots = open_slots(module, precision.allocator(module, where))
    if is_random(path_or_name):
        fill_randomly(slots, where)
    else:
        fill_from(model_path(path_or_name), slots, KeyMap(family.rules, source.config), where)
    recompute_buffers(module, where)
    if precision.weights is not None:
        run_experts_one_by_one(module)
    return cast(Denoiser, NETWORKS[family.network].wrap(module.eval(), spec))


def build_module(family: Family, source: Source) -> nn.Module:
    """The module that holds a checkpoint's weights, on the meta device.

    Raises:
        ModelError: the config is of no use for it, or says that the weights are quantised.
    """
    if "quantization_config" in source.config:
        raise ModelError(
            f"{source.name}: expected weights in floating point, got quantised ones "
            "(quantization_config). Take the checkpoint they were made from; raydiff quantises "
            "while it loads (dtype int8)."
        )
    try:
        return on_meta(NETWORKS[family.network], family.stock_config(source.config))
    except (KeyError, TypeError, ValueError, AttributeError, StrictDataclassError) as error:
        raise ModelError(
            f"{source.name}/config.json: no model can be made of it: {error!r}."
        ) from error


def resolve_device(device: str) -> torch.device:
    """The device of a setting; raises ModelError for one this machine lacks."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(
            invalid("device", expected="auto, cpu, or a CUDA device of this machine", got=device)
        ) from error
    return where
