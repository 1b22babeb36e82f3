"""A tiny shape of each family, to try everything with in seconds; no torch.

Ids below 256 are bytes of text; the special ones follow.
"""

from __future__ import annotations

from typing import Any

from raydiff.families import shapes

VOCABULARY = 320
END, MASK, BEGIN, SEPARATOR, PAD = 256, 257, 258, 259, 260

_HIDDEN, _LAYERS, _INNER, _CONTEXT, _BLOCK_LENGTH = 64, 2, 128, 512, 8

_BODY: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": _HIDDEN,
    "intermediate_size": _INNER,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": _CONTEXT,
    "mask_token_id": MASK,
    "eos_token_id": END,
    "pad_token_id": PAD,
}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_ENCODER: dict[str, Any] = {
    **{key: _BODY[key] for key in _BODY if key not in ("num_key_value_heads", "head_dim")},
    "bos_token_id": BEGIN,
    "cls_token_id": BEGIN,
    "sep_token_id": SEPARATOR,
}

LLADA = {
    **shapes.LLADA_8B,
    "d_model": _HIDDEN,
    "n_layers": _LAYERS,
    "n_heads": 4,
    "n_kv_heads": 4,
    "mlp_hidden_size": _INNER,
    "vocab_size": VOCABULARY,
    "embedding_size": VOCABULARY,
    "max_sequence_length": _CONTEXT,
    "mask_token_id": MASK,
    "eos_token_id": END,
    "pad_token_id": PAD,
}
DREAM = {**shapes.DREAM_7B, **_BODY}
SDAR = {**shapes.sdar(hidden=_HIDDEN, layers=_LAYERS, heads=4, inner=_INNER), **_BODY}
SDAR_LONG = {**SDAR, "max_position_embeddings": 8192}
SDAR_MOE = {**shapes.SDAR_30B, **_BODY, **_EXPERTS}
FAST_DLLM = {**shapes.fast_dllm(shapes.QWEN2_1_5B), **_BODY, "bd_size": 16}
LLADA2 = {
    **shapes.llada2(hidden=_HIDDEN, layers=_LAYERS, heads=4, inner=_INNER, expert_inner=32),
    **_BODY,
    **_EXPERTS,
    "block_size": _BLOCK_LENGTH,
    "n_group": 2,
    "topk_group": 1,
}
A2D_MDLM = {**shapes.a2d(), **_BODY}
A2D_BD3LM = {**shapes.a2d(block_size=_BLOCK_LENGTH), **_BODY}
BERT = {**shapes.BERT_BASE, **_ENCODER}
ROBERTA = {**shapes.ROBERTA_BASE, **_ENCODER, "pad_token_id": 1}
MODERNBERT = {
    **shapes.modernbert(hidden=_HIDDEN, layers=3, heads=4, inner=_INNER),
    **_ENCODER,
    "num_hidden_layers": 3,
    "local_attention": 32,
}
DIFFUSION_GEMMA = {
    **shapes.DIFFUSION_GEMMA,
    "canvas_length": 16,
    "text_config": {
        **shapes.DIFFUSION_GEMMA["text_config"],
        "vocab_size": VOCABULARY,
        "hidden_size": _HIDDEN,
        "intermediate_size": _INNER,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_global_key_value_heads": 1,
        "head_dim": 16,
        "global_head_dim": 32,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
        "sliding_window": 32,
        "max_position_embeddings": _CONTEXT,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "pad_token_id": PAD,
    },
}
DIFFUSEQ = {
    **shapes.DIFFUSEQ,
    **_ENCODER,
    "model_type": None,
    "seq_len": 64,
    "hidden_dim": 16,
    "hidden_t_dim": 16,
}
DIFFUSEQ_IDS = {"[PAD]": PAD, "[CLS]": BEGIN, "[SEP]": SEPARATOR, "[MASK]": MASK}
SUMMARIZER = {
    **shapes.BERT_BASE,
    **_ENCODER,
    "raydiff": {
        "mask_id": MASK,
        "end_ids": [END],
        "forbidden_ids": [PAD, BEGIN],
        "prompt_prefix_ids": [BEGIN],
        "prompt_suffix_ids": [END],
        "max_prompt_tokens": 448,
        "block_length": 16,
        "max_new_tokens": 64,
        "target_position": 448,
        "defaults": {"policy": "quota", "steps": 8, "max_tokens": 16},
    },
}
