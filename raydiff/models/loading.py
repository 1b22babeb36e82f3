"""Loads checkpoint directories: safetensors only, no code from the checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import BertConfig, BertForMaskedLM

from raydiff.errors import ModelError, invalid
from raydiff.families import load_spec, model_path
from raydiff.models.bert import BertDenoiser
from raydiff.models.denoiser import Denoiser
from raydiff.request import Decoding
from raydiff.spec import KVGroup, ModelSpec

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}


def load_denoiser(path_or_name: str | Path, device: str = "auto", dtype: str = "auto") -> Denoiser:
    """A checkpoint directory, or a bundled model by name, ready to run.

    `device` is auto (CUDA where there is one), cpu, cuda or cuda:N. `dtype` is auto, bf16, fp16 or
    fp32; auto is bf16 where the device multiplies it fast, fp32 elsewhere.

    Raises:
        ModelError: no such model, a family without a loader, missing or unreadable weights, no
            such device or dtype.
    """
    spec = load_spec(path_or_name)
    where = resolve_device(device)
    folder = model_path(path_or_name)
    if not (folder / "model.safetensors").is_file():
        raise ModelError(
            invalid(
                str(folder),
                expected="weights in model.safetensors",
                got="no such file",
                remedy="Other weight formats can run code when loaded and are refused.",
            )
        )
    try:
        model = BertForMaskedLM.from_pretrained(
            str(folder),
            dtype=resolve_dtype(dtype, where),
            use_safetensors=True,
            local_files_only=True,
        )
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise ModelError(f"{folder}: the weights cannot be loaded: {error}") from error
    return BertDenoiser(model.to(where).eval().requires_grad_(False), spec)


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


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype of a setting; raises ModelError for an unknown name."""
    if dtype == "auto":
        return torch.bfloat16 if _fast_bf16(device) else torch.float32
    if dtype not in DTYPES:
        raise ModelError(invalid("dtype", expected=f"auto or one of {sorted(DTYPES)}", got=dtype))
    return DTYPES[dtype]


def set_threads(count: int) -> None:
    """Threads that one forward may use; more than the free cores is far slower."""
    torch.set_num_threads(count)


def free_memory_bytes(device: torch.device) -> int:
    """Bytes free on a device; on a CPU what Linux says is available, elsewhere half of all."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(line for line in lines if line.startswith("MemAvailable")).split()[1]
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return int(kilobytes) * 1024


def random_denoiser(
    vocab: int = 64,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 2,
    seed: int = 0,
    target_position: int = 48,
    block_length: int = 16,
    spread: float = 0.3,
) -> BertDenoiser:
    """A tiny fp32 model with random weights, for tests: ids 0 pad, 1 begin, 2 end, 3 mask.

    `spread` is the weights' standard deviation, large enough that predictions differ.
    """
    generator = torch.Generator().manual_seed(seed)
    config = BertConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=2 * hidden,
        max_position_embeddings=target_position + 4 * block_length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config).eval().requires_grad_(False)
    for weight in model.parameters():
        if weight.ndim == 2:
            weight.copy_(torch.randn(weight.shape, generator=generator) * spread)
    spec = ModelSpec(
        name=f"random-{seed}",
        family="summarizer",
        vocab_size=vocab,
        hidden_size=hidden,
        kv=(KVGroup(layers=layers, heads=heads, head_dim=hidden // heads),),
        pad_id=0,
        mask_id=3,
        end_ids=(2,),
        forbidden_ids=(0, 1),
        prompt_prefix_ids=(1,),
        prompt_suffix_ids=(2,),
        max_prompt_tokens=target_position,
        block_length=block_length,
        max_new_tokens=4 * block_length,
        target_position=target_position,
        defaults=Decoding(policy="quota", steps=block_length, max_tokens=block_length),
    )
    return BertDenoiser(model, spec)


def _fast_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    # Without these instructions bf16 products are emulated, slower than fp32.
    checks = (torch.cpu._is_avx512_bf16_supported, torch.cpu._is_amx_tile_supported)
    return any(check() for check in checks)
