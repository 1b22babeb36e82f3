"""LLaDA2.0 and LLaDA2.1 (Bie et al. 2025, 2026): a mixture of experts that GLM-4's class holds,
block-causal attention; no torch.

LLaDA2.1 also edits tokens that it has committed. Published configs do not tell the two apart: a
checkpoint is taken for 2.1 where its model type is `llada21_moe` or its config or generation config
has an `editing_threshold`.
"""

from __future__ import annotations

from typing import Any

from raydiff.decoding import Decoding
from raydiff.families import decoder
from raydiff.families.family import Config, Family, KeyRule, Source
from raydiff.spec import ModelSpec

_MASK, _END = 156895, 156892
_BLOCK_LENGTH = 32
_MAX_TOKENS = 2048
_THRESHOLD = 0.95
_EDIT_THRESHOLD = 0.9
_MAX_EDITS = 16

_CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "<role>SYSTEM</role>detailed thinking off<|role_end|>"
    "{% endif %}"
    "{% for message in messages %}"
    "<role>{{ {'system': 'SYSTEM', 'user': 'HUMAN', 'assistant': 'ASSISTANT'}[message['role']] }}"
    "</role>{{ message['content'] }}"
    "{% if message['role'] == 'system' %}{{ '\\n' }}detailed thinking off{% endif %}"
    "<|role_end|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<role>ASSISTANT</role>{% endif %}"
)

_ROUTED = {
    "num_experts": "n_routed_experts",
    "num_shared_experts": "n_shared_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "moe_intermediate_size": "moe_intermediate_size",
    "n_group": "n_group",
    "topk_group": "topk_group",
    "routed_scaling_factor": "routed_scaling_factor",
    "first_k_dense_replace": "first_k_dense_replace",
    "use_qk_norm": "use_qk_norm",
}


def _recognises(config: Config) -> bool:
    return config.get("model_type") in ("llada2_moe", "llada21_moe")


def _stock_config(config: Config) -> dict[str, Any]:
    for bias in ("use_bias", "use_qkv_bias"):
        if config.get(bias):
            raise ValueError(f"{bias}: expected false, got true")
    rotation = decoder.rope_parameters(config)
    rotation.setdefault("partial_rotary_factor", config.get("partial_rotary_factor", 0.5))
    return {
        "model_type": "glm4_moe",
        **decoder.stock_shape(config),
        **{stock: config[name] for name, stock in _ROUTED.items()},
        "head_dim": decoder.kv_group(config).head_dim,
        "norm_topk_prob": config["num_experts_per_tok"] > 1,
        "num_mtp_layers": 0,
        "rope_parameters": rotation,
    }


def _spec(source: Source) -> ModelSpec:
    config = source.config
    _stock_config(config)
    context = config["max_position_embeddings"]
    ends = decoder.end_ids(source, ("<|role_end|>",), (_END,))
    usual = decoder.usual_tokens(_MAX_TOKENS, context)
    return ModelSpec(
        name=source.name,
        family=FAMILY.name,
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        kv=(decoder.kv_group(config),),
        attention="block-causal",
        pad_id=decoder.pad_id(source, ends[0]),
        mask_id=decoder.mask_id(source, ("<|mask|>",), _MASK),
        end_ids=ends,
        chat_template=_CHAT_TEMPLATE,
        context_length=context,
        max_prompt_tokens=context - usual,
        block_length=config.get("block_size") or _BLOCK_LENGTH,
        max_new_tokens=context - 1,
        defaults=_defaults(source, usual),
    )


def _defaults(source: Source, max_tokens: int) -> Decoding:
    if not _edits(source):
        return Decoding(policy="threshold", threshold=_THRESHOLD, max_tokens=max_tokens)
    return Decoding(
        policy="edit",
        threshold=_THRESHOLD,
        edit_threshold=_EDIT_THRESHOLD,
        max_edits=_MAX_EDITS,
        max_tokens=max_tokens,
    )


def _edits(source: Source) -> bool:
    said = (source.config, source.generation)
    of_type = source.config["model_type"] == "llada21_moe"
    return of_type or any("editing_threshold" in config for config in said)


def _fused_sizes(config: Config) -> tuple[int, ...]:
    group = decoder.kv_group(config)
    queries = config["num_attention_heads"] * group.head_dim
    return queries, group.heads * group.head_dim, group.heads * group.head_dim


_LAYER = r"model\.layers\.(\d+)\."
_TO = r"model.layers.\1."

FAMILY = Family(
    name="llada2",
    title="LLaDA2.0 and LLaDA2.1, mini and flash",
    recognises=_recognises,
    spec=_spec,
    network="decoder",
    stock_config=_stock_config,
    rules=(
        KeyRule(pattern=r"model\.word_embeddings\.weight", targets=("model.embed_tokens.weight",)),
        KeyRule(
            pattern=_LAYER + r"attention\.query_key_value\.weight",
            targets=tuple(f"{_TO}self_attn.{part}_proj.weight" for part in "qkv"),
            sizes=_fused_sizes,
        ),
        KeyRule(
            pattern=_LAYER + r"attention\.dense\.weight",
            targets=(_TO + "self_attn.o_proj.weight",),
        ),
        KeyRule(
            pattern=_LAYER + r"attention\.query_layernorm\.weight",
            targets=(_TO + "self_attn.q_norm.weight",),
        ),
        KeyRule(
            pattern=_LAYER + r"attention\.key_layernorm\.weight",
            targets=(_TO + "self_attn.k_norm.weight",),
        ),
        KeyRule(
            pattern=_LAYER + r"mlp\.gate\.expert_bias",
            targets=(_TO + "mlp.gate.e_score_correction_bias",),
        ),
        KeyRule(
            pattern=_LAYER + r"mlp\.experts\.(\d+)\.gate_proj\.weight",
            targets=(_TO + "mlp.experts.gate_up_proj",),
            stack=2,
            part=(0, 2),
        ),
        KeyRule(
            pattern=_LAYER + r"mlp\.experts\.(\d+)\.up_proj\.weight",
            targets=(_TO + "mlp.experts.gate_up_proj",),
            stack=2,
            part=(1, 2),
        ),
        KeyRule(
            pattern=_LAYER + r"mlp\.experts\.(\d+)\.down_proj\.weight",
            targets=(_TO + "mlp.experts.down_proj",),
            stack=2,
        ),
    ),
    tested=(
        "logits against a plain implementation over its published keys, alone, padded, in a batch "
        "and over a cache; whole texts through the engine"
    ),
    unchecked=(
        "texts of the public weights; the ids of mask and end token, which its configs leave out "
        "(156895 and 156892 in its own code); what tells a 2.1 checkpoint from a 2.0 one: where "
        "the config does not, ask for policy `edit`"
    ),
)
