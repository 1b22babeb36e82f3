"""Tiny checkpoints of the decoder families, in their published configs and key names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor

from tests.models.plain import decoders as plain

VOCAB = 96
MASK, END = 90, 91
HIDDEN, INNER, HEADS, KV_HEADS, WIDTH, EXPERT = 32, 48, 4, 2, 8, 16
LAYERS = 2
SHARD_TENSORS = 9


@dataclass(frozen=True)
class Tiny:
    """One checkpoint to be: its config, its tensors under published keys, its arithmetic."""

    name: str
    config: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    plain: plain.Forward
    block_length: int | None = None
    """Of its attention; `None` for full attention."""

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """Random, with norms near 1 and everything else large enough for predictions to differ."""
        generator = torch.Generator().manual_seed(len(self.shapes))
        made = {}
        for key, shape in self.shapes.items():
            noise = torch.randn(shape, generator=generator)
            made[key] = 1 + 0.2 * noise if "norm" in key or "ln_f" in key else 0.25 * noise
        return made

    def one_layer(self) -> Tiny:
        """The same with its first layer alone."""
        depth = "n_layers" if "n_layers" in self.config else "num_hidden_layers"
        kept = {
            key: shape
            for key, shape in self.shapes.items()
            if not key.startswith(("model.layers.1.", "model.transformer.blocks.1."))
        }
        return replace(self, config={**self.config, depth: 1}, shapes=kept)

    def sees(self, length: int, block_length: int | None) -> Tensor:
        """(length, length) which position may attend to which."""
        blocks = torch.arange(length) // (block_length or length)
        return blocks[:, None] >= blocks[None, :]

    def logits(self, tokens: Tensor, sees: Tensor | None = None) -> Tensor:
        """Of one row that begins at position 0."""
        seen = self.sees(len(tokens), self.block_length) if sees is None else sees
        return self.plain(self.config, self.weights, tokens, torch.arange(len(tokens)), seen)

    def save(self, folder: Path) -> Path:
        """Write it as published: config, two or more shards with their index, a tokenizer."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        weights = list(self.weights.items())
        shards = [weights[i : i + SHARD_TENSORS] for i in range(0, len(weights), SHARD_TENSORS)]
        index = {}
        for i, shard in enumerate(shards, 1):
            file = f"model-{i:05}-of-{len(shards):05}.safetensors"
            save_file(dict(shard), folder / file)
            index.update({key: file for key, _ in shard})
        text = json.dumps({"metadata": {}, "weight_map": index})
        (folder / "model.safetensors.index.json").write_text(text)
        words = {f"w{i}": i for i in range(VOCAB)}
        tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        tokenizer.save(str(folder / "tokenizer.json"))
        return folder


IDS = {"mask_token_id": MASK, "eos_token_id": END, "pad_token_id": END}
BODY = {
    **IDS,
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "hidden_act": "silu",
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "use_cache": False,
}
LLADA = {
    **IDS,
    "architectures": ["LLaDAModelLM"],
    "model_type": "llada",
    "activation_type": "silu",
    "alibi": False,
    "attention_layer_norm": False,
    "block_type": "llama",
    "d_model": HIDDEN,
    "embedding_size": VOCAB,
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "max_sequence_length": 128,
    "mlp_hidden_size": INNER,
    "n_heads": HEADS,
    "n_kv_heads": HEADS,
    "n_layers": LAYERS,
    "rms_norm_eps": 1e-5,
    "rope": True,
    "rope_theta": 500000.0,
    "scale_logits": False,
    "vocab_size": VOCAB,
    "weight_tying": False,
}
EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": EXPERT,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
LLADA2 = {
    **{key: BODY[key] for key in BODY if key not in ("mask_token_id", "eos_token_id")},
    "architectures": ["LLaDA2MoeModelLM"],
    "model_type": "llada2_moe",
    "pad_token_id": END,
    **IDS,
    "head_dim": WIDTH,
    "rope_theta": 600000.0,
    "partial_rotary_factor": 0.5,
    "use_qk_norm": True,
    "use_bias": False,
    "use_qkv_bias": False,
    "num_experts": 8,
    "num_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": EXPERT,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5,
}


def _llada_shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    kv = config["n_kv_heads"] * HIDDEN // config["n_heads"]
    yield "model.transformer.wte.weight", (VOCAB, HIDDEN)
    yield "model.transformer.ln_f.weight", (HIDDEN,)
    yield "model.transformer.ff_out.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        block = f"model.transformer.blocks.{i}."
        yield block + "attn_norm.weight", (HIDDEN,)
        yield block + "ff_norm.weight", (HIDDEN,)
        yield block + "q_proj.weight", (HIDDEN, HIDDEN)
        yield block + "k_proj.weight", (kv, HIDDEN)
        yield block + "v_proj.weight", (kv, HIDDEN)
        yield block + "attn_out.weight", (HIDDEN, HIDDEN)
        yield block + "ff_proj.weight", (INNER, HIDDEN)
        yield block + "up_proj.weight", (INNER, HIDDEN)
        yield block + "ff_out.weight", (HIDDEN, INNER)


def _qwen_shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    width = config.get("head_dim") or HIDDEN // HEADS
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (HIDDEN,)
        yield layer + "post_attention_layernorm.weight", (HIDDEN,)
        for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield f"{layer}self_attn.{part}_proj.weight", (heads * width, HIDDEN)
            if "head_dim" not in config:  # Qwen2
                yield f"{layer}self_attn.{part}_proj.bias", (heads * width,)
        if "head_dim" in config:  # Qwen3
            yield layer + "self_attn.q_norm.weight", (width,)
            yield layer + "self_attn.k_norm.weight", (width,)
        yield layer + "self_attn.o_proj.weight", (HIDDEN, HEADS * width)
        if "num_experts" in config:
            yield layer + "mlp.gate.weight", (config["num_experts"], HIDDEN)
            yield from _experts(layer + "mlp.", config["num_experts"])
        else:
            yield from _mlp(layer + "mlp.", INNER)


def _llada2_shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.word_embeddings.weight", (VOCAB, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (HIDDEN,)
        yield layer + "post_attention_layernorm.weight", (HIDDEN,)
        fused = (HEADS + 2 * KV_HEADS) * WIDTH
        yield layer + "attention.query_key_value.weight", (fused, HIDDEN)
        yield layer + "attention.query_layernorm.weight", (WIDTH,)
        yield layer + "attention.key_layernorm.weight", (WIDTH,)
        yield layer + "attention.dense.weight", (HIDDEN, HEADS * WIDTH)
        if i < config["first_k_dense_replace"]:
            yield from _mlp(layer + "mlp.", INNER)
        else:
            yield layer + "mlp.gate.weight", (config["num_experts"], HIDDEN)
            yield layer + "mlp.gate.expert_bias", (config["num_experts"],)
            yield from _experts(layer + "mlp.", config["num_experts"])
            yield from _mlp(layer + "mlp.shared_experts.", EXPERT)


def _experts(prefix: str, count: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for expert in range(count):
        yield from _mlp(f"{prefix}experts.{expert}.", EXPERT)


def _mlp(prefix: str, inner: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield prefix + "gate_proj.weight", (inner, HIDDEN)
    yield prefix + "up_proj.weight", (inner, HIDDEN)
    yield prefix + "down_proj.weight", (HIDDEN, inner)


def _qwen(name: str, block_length: int | None = None, /, **settings: Any) -> Tiny:
    config = {**BODY, **settings}
    return Tiny(name, config, dict(_qwen_shapes(config)), plain.qwen, block_length)


def _llada(name: str, **settings: Any) -> Tiny:
    config = {**LLADA, **settings}
    return Tiny(name, config, dict(_llada_shapes(config)), plain.llada)


TINY: Sequence[Tiny] = (
    _llada("llada"),
    _llada("llada-shared-heads", n_kv_heads=KV_HEADS),
    _qwen("dream", model_type="Dream", architectures=["DreamModel"]),
    _qwen("sdar", 4, model_type="sdar", head_dim=WIDTH, block_size=4),
    _qwen("sdar-moe", 4, model_type="sdar_moe", head_dim=2 * WIDTH, block_size=4, **EXPERTS),
    _qwen("fast-dllm", 8, model_type="Fast_dLLM_Qwen", bd_size=8),
    _qwen("fast-dllm-tied", 8, model_type="Fast_dLLM_Qwen", bd_size=8, tie_word_embeddings=True),
    Tiny("llada2", LLADA2, dict(_llada2_shapes(LLADA2)), plain.llada2, 32),
    _qwen("a2d-mdlm", model_type="a2d-qwen3", head_dim=WIDTH, tie_word_embeddings=True),
    _qwen("a2d-bd3lm", 8, model_type="a2d-qwen3", head_dim=WIDTH, block_size=8),
    _qwen("a2d-qwen2", model_type="a2d-qwen2"),
)
BY_NAME = {tiny.name: tiny for tiny in TINY}
