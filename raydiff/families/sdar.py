"""SDAR (Cheng et al. 2025), dense and with experts: Qwen3's body, block-causal attention; no
torch.
"""

from __future__ import annotations

from typing import Any

from raydiff.decoding import Decoding
from raydiff.families import decoder
from raydiff.families.family import Config, Family, KeyRule, Source
from raydiff.spec import ModelSpec

_MASK, _END, _END_OF_TURN = 151669, 151643, 151645
_BLOCK_LENGTH = 4
_MAX_TOKENS = 4096
_THRESHOLD = 0.85

_STOCK_TYPES = {"sdar": "qwen3", "sdar_moe": "qwen3_moe"}
_EXPERTS = (
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "norm_topk_prob",
    "decoder_sparse_step",
    "mlp_only_layers",
)


def _recognises(config: Config) -> bool:
    return config.get("model_type") in _STOCK_TYPES


def _stock_config(config: Config) -> dict[str, Any]:
    experts = {key: config[key] for key in _EXPERTS if config.get(key) is not None}
    kind = _STOCK_TYPES[config["model_type"]]
    return {"model_type": kind, **decoder.stock_shape(config), **experts}


def _spec(source: Source) -> ModelSpec:
    config = source.config
    _stock_config(config)
    context = config["max_position_embeddings"]
    ends = decoder.end_ids(source, ("<|im_end|>",), (_END, _END_OF_TURN))
    usual = decoder.usual_tokens(_MAX_TOKENS, context)
    return ModelSpec(
        name=source.name,
        family=FAMILY.name,
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        kv=(decoder.kv_group(config),),
        attention="block-causal",
        pad_id=decoder.pad_id(source, ends[0]),
        mask_id=decoder.mask_id(source, ("<|MASK|>", "<MASK>"), _MASK),
        end_ids=ends,
        chat_template=decoder.qwen_chat(),
        context_length=context,
        max_prompt_tokens=context - usual,
        block_length=_block_length(source),
        max_new_tokens=context - 1,
        defaults=Decoding(policy="threshold", threshold=_THRESHOLD, max_tokens=usual),
    )


def _block_length(source: Source) -> int:
    said = (source.config.get("block_size"), source.generation.get("block_length"))
    return next((int(length) for length in said if length), _BLOCK_LENGTH)


FAMILY = Family(
    name="sdar",
    title="SDAR 1.7B, 4B, 8B and 30B-A3B",
    recognises=_recognises,
    spec=_spec,
    network="decoder",
    stock_config=_stock_config,
    rules=(
        KeyRule(
            pattern=r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.gate_proj\.weight",
            targets=(r"model.layers.\1.mlp.experts.gate_up_proj",),
            stack=2,
            part=(0, 2),
        ),
        KeyRule(
            pattern=r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.up_proj\.weight",
            targets=(r"model.layers.\1.mlp.experts.gate_up_proj",),
            stack=2,
            part=(1, 2),
        ),
        KeyRule(
            pattern=r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.down_proj\.weight",
            targets=(r"model.layers.\1.mlp.experts.down_proj",),
            stack=2,
        ),
    ),
    tested=(
        "logits against a plain implementation over its published keys, alone, padded, in a batch "
        "and over a cache, dense and with experts; whole texts through the engine"
    ),
    unchecked=(
        "texts of the public weights; the config of the model with experts; whether the configs of "
        "variants with larger blocks give `block_size` (else 4 is taken)"
    ),
)
