"""LLaDA (Nie et al. 2025): a Llama body with full attention and OLMo's names; no torch.

iLLaDA shares the format with ids of its own, which its config gives.
"""

from __future__ import annotations

from typing import Any

from raydiff.decoding import Decoding
from raydiff.families import decoder
from raydiff.families.family import Config, Family, KeyRule, Source
from raydiff.spec import ModelSpec

_MASK, _END, _END_OF_TURN = 126336, 126081, 126348
_CONTEXT = 4096
_BLOCK_LENGTH = 32
_MAX_TOKENS = 128

_CHAT_TEMPLATE = (
    "<|startoftext|>"
    "{% for message in messages %}"
    "<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] | trim }}<|eot_id|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)

_ONLY: dict[str, Any] = {
    "block_type": "llama",
    "layer_norm_type": "rms",
    "activation_type": "silu",
    "rope": True,
    "alibi": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "attention_layer_norm": False,
    "input_emb_norm": False,
    "scale_logits": False,
}
"""Settings of OLMo's model code that LLaDA leaves at these values; others would compute
something else."""


def _recognises(config: Config) -> bool:
    # LLaDA-MoE has the same model type, and other settings
    return config.get("model_type") == "llada" and "d_model" in config


def _stock_config(config: Config) -> dict[str, Any]:
    for name, value in _ONLY.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name}: expected {value!r}, got {config[name]!r}")
    return {
        "model_type": "llama",
        "vocab_size": _vocabulary(config),
        "hidden_size": config["d_model"],
        "intermediate_size": config["mlp_hidden_size"],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
        "num_key_value_heads": config.get("n_kv_heads") or config["n_heads"],
        "rms_norm_eps": config.get("rms_norm_eps", 1e-5),
        "max_position_embeddings": config.get("max_sequence_length", _CONTEXT),
        "tie_word_embeddings": config.get("weight_tying", False),
        "rope_parameters": decoder.rope_parameters(config),
    }


def _vocabulary(config: Config) -> int:
    """Rows of the embedding table, which may be padded beyond the vocabulary."""
    return int(config.get("embedding_size") or config["vocab_size"])


def _spec(source: Source) -> ModelSpec:
    stock = _stock_config(source.config)
    context = stock["max_position_embeddings"]
    ends = decoder.end_ids(source, ("<|eot_id|>",), (_END, _END_OF_TURN))
    usual = decoder.usual_tokens(_MAX_TOKENS, context)
    return ModelSpec(
        name=source.name,
        family=FAMILY.name,
        vocab_size=stock["vocab_size"],
        hidden_size=stock["hidden_size"],
        kv=(decoder.kv_group(stock),),
        attention="full",
        pad_id=decoder.pad_id(source, ends[0]),
        mask_id=decoder.mask_id(source, ("<|mdm_mask|>",), _MASK),
        end_ids=ends,
        chat_template=_CHAT_TEMPLATE,
        context_length=context,
        max_prompt_tokens=context - usual,
        block_length=context - 1,
        max_new_tokens=context - 1,
        defaults=Decoding(
            policy="quota",
            steps=min(_BLOCK_LENGTH, usual),
            block_length=min(_BLOCK_LENGTH, usual),
            max_tokens=usual,
        ),
    )


_PREFIX = r"model\.transformer\."
_BLOCK = _PREFIX + r"blocks\.(\d+)\."
_PARTS = {
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}

FAMILY = Family(
    name="llada",
    title="LLaDA 8B Base and Instruct, LLaDA 1.5, iLLaDA",
    recognises=_recognises,
    spec=_spec,
    network="decoder",
    stock_config=_stock_config,
    rules=(
        KeyRule(pattern=_PREFIX + r"wte\.weight", targets=("model.embed_tokens.weight",)),
        KeyRule(pattern=_PREFIX + r"ln_f\.weight", targets=("model.norm.weight",)),
        KeyRule(pattern=_PREFIX + r"ff_out\.weight", targets=("lm_head.weight",)),
        *(
            KeyRule(
                pattern=_BLOCK + part + r"\.weight", targets=(rf"model.layers.\1.{stock}.weight",)
            )
            for part, stock in _PARTS.items()
        ),
    ),
    tested=(
        "logits against a plain implementation over its published keys, alone, padded and in a "
        "batch; whole texts through the engine"
    ),
    unchecked=(
        "texts of the public weights; whether base models expect the begin token (none is added); "
        "iLLaDA's config, whose ids (mask 5, end 2, pad 1) must be in its files"
    ),
)
