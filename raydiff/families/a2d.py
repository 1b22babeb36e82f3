"""A2D (the dllm project): Qwen3, Qwen2.5 or Llama turned into a denoiser by masked diffusion (MDLM,
full attention) or block diffusion (BD3LM, block-causal); no torch.

Published configs do not tell the two apart: a checkpoint is block-causal where its config has a
`block_size`.
"""

from __future__ import annotations

from typing import Any

from raydiff.decoding import Decoding
from raydiff.families import decoder
from raydiff.families.family import Config, Family, Source
from raydiff.spec import ModelSpec

_PREFIX = "a2d-"
_MASKS = {"qwen3": 151669, "qwen2": 151665, "llama": None}
_ENDS: dict[str, tuple[int, ...]] = {
    "qwen3": (151643, 151645),
    "qwen2": (151643, 151645),
    "llama": (),
}
_BLOCK_LENGTH = 32
_MAX_TOKENS = 128


def _recognises(config: Config) -> bool:
    return str(config.get("model_type")).startswith(_PREFIX) and _body(config) in _MASKS


def _body(config: Config) -> str:
    return str(config["model_type"]).removeprefix(_PREFIX)


def _stock_config(config: Config) -> dict[str, Any]:
    return {"model_type": _body(config), **decoder.stock_shape(config)}


def _spec(source: Source) -> ModelSpec:
    config = source.config
    _stock_config(config)
    context = config["max_position_embeddings"]
    blocks = config.get("block_size")
    ends = decoder.end_ids(source, ("<|im_end|>", "<|eot_id|>"), _ENDS[_body(config)])
    usual = decoder.usual_tokens(_MAX_TOKENS, context)
    length = min(_BLOCK_LENGTH, usual)
    return ModelSpec(
        name=source.name,
        family=FAMILY.name,
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        kv=(decoder.kv_group(config),),
        attention="block-causal" if blocks else "full",
        pad_id=decoder.pad_id(source, ends[0]),
        mask_id=decoder.mask_id(source, ("<|mask|>",), _MASKS[_body(config)]),
        end_ids=ends,
        chat_template=decoder.qwen_chat(thought=_body(config) == "qwen3"),
        context_length=context,
        max_prompt_tokens=context - usual,
        block_length=blocks or context - 1,
        max_new_tokens=context - 1,
        defaults=Decoding(
            policy="quota",
            steps=blocks or length,
            block_length=blocks or length,
            max_tokens=usual,
        ),
    )


FAMILY = Family(
    name="a2d",
    title="A2D of dllm-hub, e.g. Qwen3-0.6B-diffusion-mdlm and -bd3lm",
    recognises=_recognises,
    spec=_spec,
    network="decoder",
    stock_config=_stock_config,
    tested=(
        "logits against a plain implementation over its published keys, alone, padded, in a batch "
        "and over a cache, full and block-causal; whole texts through the engine"
    ),
    unchecked=(
        "texts of the public weights; a bd3lm checkpoint needs `block_size` (32) in its config, "
        "which dllm keeps in its sampler; blocks are counted from the prompt's first token, as in "
        "training, where its sampler counts them from the prompt's end; a checkpoint's own "
        "template is rendered without dllm's `enable_thinking=False`"
    ),
)
