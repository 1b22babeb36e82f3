"""Models with random weights, to test with and to plan by."""

from __future__ import annotations

import torch
from transformers import BertConfig, BertForMaskedLM

from raydiff.models.bert import BertDenoiser
from raydiff.request import Decoding
from raydiff.spec import KVGroup, ModelSpec


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
