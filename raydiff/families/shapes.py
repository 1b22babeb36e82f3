"""The shapes of public models, as their `config.json` files give them; no torch.

Only what shapes, computes or decodes is kept. `raydiff.families.presets` names them and says which
were not read in the public config itself.
"""

from __future__ import annotations

from typing import Any


def _qwen2(**shape: Any) -> dict[str, Any]:
    return {
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "use_sliding_window": False,
        "eos_token_id": 151643,
        **shape,
    }


def _qwen3(**shape: Any) -> dict[str, Any]:
    return _qwen2(head_dim=128, attention_bias=False, vocab_size=151936, **shape)


QWEN2_1_5B: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
QWEN2_7B: dict[str, Any] = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}

LLADA_8B: dict[str, Any] = {
    "model_type": "llada",
    "architectures": ["LLaDAModelLM"],
    "d_model": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 32,
    "mlp_hidden_size": 12288,
    "vocab_size": 126464,
    "embedding_size": 126464,
    "max_sequence_length": 4096,
    "rope": True,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "layer_norm_type": "rms",
    "block_type": "llama",
    "activation_type": "silu",
    "weight_tying": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "mask_token_id": 126336,
    "eos_token_id": 126081,
    "pad_token_id": 126081,
}


DREAM_7B = _qwen2(
    model_type="Dream",
    architectures=["DreamModel"],
    max_position_embeddings=131072,
    mask_token_id=151666,
    pad_token_id=151643,
    **QWEN2_7B,
)


def sdar(hidden: int, layers: int, heads: int, inner: int) -> dict[str, Any]:
    return _qwen3(
        model_type="sdar",
        architectures=["SDARForCausalLM"],
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        max_position_embeddings=32768,
        block_size=4,
        mask_token_id=151669,
        tie_word_embeddings=False,
    )


SDAR_30B: dict[str, Any] = {
    **sdar(hidden=2048, layers=48, heads=32, inner=6144),
    "model_type": "sdar_moe",
    "architectures": ["SDARMoeForCausalLM"],
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def fast_dllm(body: dict[str, Any]) -> dict[str, Any]:
    return _qwen2(
        model_type="Fast_dLLM_Qwen",
        architectures=["Fast_dLLM_QwenForCausalLM"],
        max_position_embeddings=32768,
        bd_size=32,
        **body,
    ) | {"eos_token_id": 151645}


def llada2(hidden: int, layers: int, heads: int, inner: int, expert_inner: int) -> dict[str, Any]:
    return {
        "model_type": "llada2_moe",
        "architectures": ["LLaDA2MoeModelLM"],
        "vocab_size": 157184,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 32768,
        "rope_theta": 600000.0,
        "partial_rotary_factor": 0.5,
        "use_qk_norm": True,
        "use_bias": False,
        "use_qkv_bias": False,
        "tie_word_embeddings": False,
        "num_experts": 256,
        "num_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": expert_inner,
        "n_group": 8,
        "topk_group": 4,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "score_function": "sigmoid",
        "first_k_dense_replace": 1,
        "pad_token_id": 156892,
    }


def a2d(**also: Any) -> dict[str, Any]:
    return _qwen3(
        model_type="a2d-qwen3",
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        max_position_embeddings=40960,
        tie_word_embeddings=True,
        **also,
    ) | {"eos_token_id": 151645}


BERT_BASE: dict[str, Any] = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "vocab_size": 30522,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
BERT_IDS = {"[PAD]": 0, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
ROBERTA_BASE: dict[str, Any] = {
    **BERT_BASE,
    "model_type": "roberta",
    "architectures": ["RobertaForMaskedLM"],
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
}
ROBERTA_IDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<mask>": 50264}


def modernbert(hidden: int, layers: int, heads: int, inner: int) -> dict[str, Any]:
    return {
        "model_type": "modernbert",
        "architectures": ["ModernBertForMaskedLM"],
        "vocab_size": 50368,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "max_position_embeddings": 8192,
        "norm_eps": 1e-5,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "decoder_bias": True,
        "classifier_bias": False,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_attention": 128,
        "local_rope_theta": 10000.0,
        "bos_token_id": 50281,
        "cls_token_id": 50281,
        "eos_token_id": 50282,
        "sep_token_id": 50282,
        "pad_token_id": 50283,
    }


MODERNBERT_IDS = {"[CLS]": 50281, "[SEP]": 50282, "[PAD]": 50283, "[MASK]": 50284}

DIFFUSION_GEMMA: dict[str, Any] = {
    "model_type": "diffusion_gemma",
    "architectures": ["DiffusionGemmaForBlockDiffusion"],
    "canvas_length": 256,
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "diffusion_gemma_text",
        "vocab_size": 262144,
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 2,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_experts": 128,
        "top_k_experts": 8,
        "moe_intermediate_size": 704,
        "sliding_window": 1024,
        "max_position_embeddings": 262144,
        "final_logit_softcapping": 30.0,
        "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
}

DIFFUSEQ: dict[str, Any] = {
    "seq_len": 128,
    "hidden_dim": 128,
    "hidden_t_dim": 128,
    "predict_xstart": True,
    "noise_schedule": "sqrt",
    "diffusion_steps": 2000,
    "rescale_timesteps": True,
    "vocab": "bert",
    "config_name": "bert-base-uncased",
}
