"""Models with random weights, to test with and to plan by."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from raydiff.models.bert import BertDenoiser
from raydiff.models.quantized import QuantizedWeight
from raydiff.models.slots import Slot, Slots
from raydiff.request import Decoding
from raydiff.spec import KVGroup, ModelSpec

SPREAD = 0.02
"""Standard deviation of random weights, the usual one of untrained transformers."""
CHUNK_VALUES = 2**24
"""Most values drawn at once."""


def fill_randomly(slots: Slots, device: torch.device, seed: int = 0) -> None:
    """Give every slot what an untrained model has: matrices normal about zero, scales one, biases
    zero. A seed and a kind of device give the same weights.
    """
    generator = torch.Generator(device).manual_seed(seed)
    for slot in slots.all():
        if slot.tensor.ndim < 2:
            slot.tensor.fill_(0.0 if slot.key.endswith("bias") else 1.0)
            continue
        for part in _parts(slot):
            drawn = torch.empty(part.shape, dtype=part.dtype, device=device)
            part.copy_(drawn.normal_(0.0, SPREAD, generator=generator))


def _parts(slot: Slot) -> Iterator[Tensor]:
    """A weight in runs along its first dimension, or whole if it has no parts."""
    tensor, height = slot.tensor, slot.shape[0]
    step = max(1, CHUNK_VALUES * height // max(1, tensor.numel()))
    if isinstance(tensor, QuantizedWeight) and tensor.pick(slice(0, 1)) is None:
        yield tensor
        return
    for start in range(0, height, step):
        yield tensor.narrow(0, start, min(step, height - start))


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
