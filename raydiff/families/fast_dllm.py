"""Fast-dLLM v2 (Wu et al. 2025): Qwen2.5's body, block-causal attention, shifted logits, blocks
filled part by part; no torch.

A block's first token is the model's autoregressive prediction at the end of the block before.
"""

from __future__ import annotations

from typing import Any

from raydiff.decoding import Decoding
from raydiff.families import decoder
from raydiff.families.family import Config, Family, Source
from raydiff.spec import ModelSpec

_MASK, _END = 151665, 151645
_BLOCK_LENGTH, _PART_LENGTH = 32, 8
_MAX_TOKENS = 2048
_THRESHOLD = 0.9


def _recognises(config: Config) -> bool:
    return config.get("model_type") == "Fast_dLLM_Qwen"


def _stock_config(config: Config) -> dict[str, Any]:
    return {"model_type": "qwen2", **decoder.stock_shape(config)}


def _spec(source: Source) -> ModelSpec:
    config = source.config
    _stock_config(config)
    context = config["max_position_embeddings"]
    block_length = config.get("bd_size", _BLOCK_LENGTH)
    ends = decoder.end_ids(source, ("<|im_end|>",), (_END,))
    usual = decoder.usual_tokens(_MAX_TOKENS, context)
    return ModelSpec(
        name=source.name,
        family=FAMILY.name,
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        kv=(decoder.kv_group(config),),
        attention="block-causal",
        shift=True,
        commit_first=True,
        pad_id=decoder.pad_id(source, ends[0]),
        mask_id=decoder.mask_id(source, ("|<MASK>|",), _MASK),
        end_ids=ends,
        chat_template=decoder.qwen_chat(
            system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        ),
        context_length=context,
        max_prompt_tokens=context - usual,
        block_length=block_length,
        max_new_tokens=context - 1,
        defaults=Decoding(
            policy="threshold",
            threshold=_THRESHOLD,
            block_length=_PART_LENGTH if block_length % _PART_LENGTH == 0 else block_length,
            max_tokens=usual,
        ),
    )


FAMILY = Family(
    name="fast-dllm",
    title="Fast-dLLM v2 1.5B and 7B",
    recognises=_recognises,
    spec=_spec,
    network="decoder",
    stock_config=_stock_config,
    tested=(
        "logits against a plain implementation over its published keys, alone, padded, in a batch "
        "and over a cache; whole texts through the engine"
    ),
    unchecked=(
        "texts of the public weights; a block's first token commits in the block's first step, "
        "where its authors' loop commits it just before; their cache of parts of a block is "
        "approximate and left out"
    ),
)
