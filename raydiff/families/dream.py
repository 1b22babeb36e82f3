"""Dream (Ye et al. 2025), Dream-Coder and DiffuCoder: Qwen2's body with full attention and shifted
logits; no torch.
"""

from __future__ import annotations

from typing import Any

from raydiff.decoding import Decoding
from raydiff.families import decoder
from raydiff.families.family import Config, Family, Source
from raydiff.spec import ModelSpec

_MASK, _END, _END_OF_TURN = 151666, 151643, 151645
_CONTEXT = 2048
"""What its authors document; the config inherits Qwen2's 131,072 positions."""
_MAX_TOKENS = 512
_TEMPERATURE = 0.2


def _recognises(config: Config) -> bool:
    # later models of this type with a `block_size` are block-causal and not shifted
    return config.get("model_type") == "Dream" and "block_size" not in config


def _stock_config(config: Config) -> dict[str, Any]:
    return {"model_type": "qwen2", **decoder.stock_shape(config)}


def _spec(source: Source) -> ModelSpec:
    config = source.config
    _stock_config(config)
    context = min(config["max_position_embeddings"], _CONTEXT)
    ends = decoder.end_ids(source, ("<|im_end|>",), (_END, _END_OF_TURN))
    usual = decoder.usual_tokens(_MAX_TOKENS, context)
    return ModelSpec(
        name=source.name,
        family=FAMILY.name,
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        kv=(decoder.kv_group(config),),
        attention="full",
        shift=True,
        pad_id=decoder.pad_id(source, ends[0]),
        mask_id=decoder.mask_id(source, ("<|mask|>",), _MASK),
        end_ids=ends,
        prompt_prefix_ids=_begin(source),
        chat_template=decoder.qwen_chat(system="You are a helpful assistant."),
        context_length=context,
        max_prompt_tokens=context - usual,
        block_length=context - 1,
        max_new_tokens=context - 1,
        defaults=Decoding(
            policy="quota",
            score="entropy",
            schedule="timestep",
            steps=usual,
            max_tokens=usual,
            temperature=_TEMPERATURE,
        ),
    )


def _begin(source: Source) -> tuple[int, ...]:
    """The tokenizer's begin token, with which its authors begin texts to be continued; the
    config's `bos_token_id` is another, Qwen2's."""
    begin = source.special_ids.get(source.special_tokens.get("bos_token", ""))
    return () if begin is None else (begin,)


FAMILY = Family(
    name="dream",
    title="Dream 7B, Dream-Coder 7B, DiffuCoder 7B",
    recognises=_recognises,
    spec=_spec,
    network="decoder",
    stock_config=_stock_config,
    tested=(
        "logits against a plain implementation over its published keys, alone, padded and in a "
        "batch; whole texts through the engine"
    ),
    unchecked=(
        "texts of the public weights; its authors sample with top_p 0.95 too, which a request must "
        "give; the configs and templates of Dream-Coder and DiffuCoder"
    ),
)
