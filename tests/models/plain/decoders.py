"""The decoder families by their published descriptions: one row, one position, one head at a time.

Each function takes a checkpoint's config and its tensors under their published keys, tokens, their
positions and which token may attend to which, and returns logits [tokens, vocabulary]. Nothing
here comes from transformers or raydiff.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Config = Mapping[str, Any]
Weights = Mapping[str, Tensor]
Forward = Callable[[Config, Weights, Tensor, Tensor, Tensor], Tensor]


def llada(config: Config, w: Weights, tokens: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
    """LLaDA: Llama's arithmetic under OLMo's names."""
    heads, kv_heads = config["n_heads"], config["n_kv_heads"]
    width, eps = config["d_model"] // heads, config["rms_norm_eps"]
    x = w["model.transformer.wte.weight"][tokens]
    for i in range(config["n_layers"]):
        block = f"model.transformer.blocks.{i}."
        n = rms_norm(x, w[block + "attn_norm.weight"], eps)
        q, k, v = (
            (n @ w[block + part + "_proj.weight"].T).view(len(x), count, width)
            for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k = (turn(y, positions, config["rope_theta"], width) for y in (q, k))
        x = x + attention(q, k, v, sees) @ w[block + "attn_out.weight"].T
        n = rms_norm(x, w[block + "ff_norm.weight"], eps)
        parts = (w[block + part + ".weight"] for part in ("ff_proj", "up_proj", "ff_out"))
        x = x + swiglu(n, *parts)
    x = rms_norm(x, w["model.transformer.ln_f.weight"], eps)
    return x @ w["model.transformer.ff_out.weight"].T


def qwen(config: Config, w: Weights, tokens: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
    """Qwen2 (biased q, k, v), Qwen3 (normalised heads) and Qwen3 with experts."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    eps = config["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        n = rms_norm(x, w[layer + "input_layernorm.weight"], eps)
        heads_of = []
        for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            name = f"{layer}self_attn.{part}_proj."
            y = n @ w[name + "weight"].T + w.get(name + "bias", torch.zeros(()))
            heads_of.append(y.view(len(x), count, width))
        q, k, v = heads_of
        if layer + "self_attn.q_norm.weight" in w:
            q = rms_norm(q, w[layer + "self_attn.q_norm.weight"], eps)
            k = rms_norm(k, w[layer + "self_attn.k_norm.weight"], eps)
        q, k = (turn(y, positions, config["rope_theta"], width) for y in (q, k))
        x = x + attention(q, k, v, sees) @ w[layer + "self_attn.o_proj.weight"].T
        n = rms_norm(x, w[layer + "post_attention_layernorm.weight"], eps)
        if config.get("num_experts"):
            x = x + torch.stack([qwen_experts(config, w, layer + "mlp.", row) for row in n])
        else:
            x = x + mlp(w, layer + "mlp.", n)
    x = rms_norm(x, w["model.norm.weight"], eps)
    tied = config["tie_word_embeddings"]
    return x @ w["model.embed_tokens.weight" if tied else "lm_head.weight"].T


def qwen_experts(config: Config, w: Weights, prefix: str, row: Tensor) -> Tensor:
    """Softmax over all experts, then the best few, their weights made to sum to 1."""
    shares = (w[prefix + "gate.weight"] @ row).softmax(0)
    best = shares.argsort(descending=True)[: config["num_experts_per_tok"]]
    total = shares[best].sum() if config["norm_topk_prob"] else 1.0
    parts = [shares[e] / total * mlp(w, f"{prefix}experts.{int(e)}.", row) for e in best]
    return torch.stack(parts).sum(0)


def llada2(config: Config, w: Weights, tokens: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
    """LLaDA2: fused queries, keys and values; half of each head turned; routed experts."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    width, eps = config["head_dim"], config["rms_norm_eps"]
    turned = int(width * config["partial_rotary_factor"])
    x = w["model.word_embeddings.weight"][tokens]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        n = rms_norm(x, w[layer + "input_layernorm.weight"], eps)
        fused = (n @ w[layer + "attention.query_key_value.weight"].T).view(len(x), -1, width)
        q, k, v = fused.split([heads, kv_heads, kv_heads], dim=1)
        q = rms_norm(q, w[layer + "attention.query_layernorm.weight"], eps)
        k = rms_norm(k, w[layer + "attention.key_layernorm.weight"], eps)
        q, k = (turn(y, positions, config["rope_theta"], turned) for y in (q, k))
        x = x + attention(q, k, v, sees) @ w[layer + "attention.dense.weight"].T
        n = rms_norm(x, w[layer + "post_attention_layernorm.weight"], eps)
        if i < config["first_k_dense_replace"]:
            x = x + mlp(w, layer + "mlp.", n)
        else:
            routed = torch.stack([llada2_experts(config, w, layer + "mlp.", row) for row in n])
            x = x + routed + mlp(w, layer + "mlp.shared_experts.", n)
    return rms_norm(x, w["model.norm.weight"], eps) @ w["lm_head.weight"].T


def llada2_experts(config: Config, w: Weights, prefix: str, row: Tensor) -> Tensor:
    """Sigmoid scores; a bias takes part in the choice only: first of groups, by the sum of their
    two best, then of experts within them.
    """
    scores = (w[prefix + "gate.weight"] @ row).sigmoid()
    biased = (scores + w[prefix + "gate.expert_bias"]).view(config["n_group"], -1)
    by_group = biased.sort(dim=1, descending=True).values[:, :2].sum(1)
    allowed = by_group.argsort(descending=True)[: config["topk_group"]].tolist()
    kept = [
        biased[g] if g in allowed else torch.full_like(biased[g], -torch.inf)
        for g in range(len(biased))
    ]
    best = torch.cat(kept).argsort(descending=True)[: config["num_experts_per_tok"]]
    shares = scores[best] / scores[best].sum() * config["routed_scaling_factor"]
    parts = [
        s * mlp(w, f"{prefix}experts.{int(e)}.", row) for s, e in zip(shares, best, strict=True)
    ]
    return torch.stack(parts).sum(0)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def turn(x: Tensor, positions: Tensor, base: float, size: int) -> Tensor:
    """Rotate value pairs (i, i + size / 2) of the first `size` values, as complex numbers."""
    half = size // 2
    angles = positions[:, None] * base ** (-torch.arange(half) / half)
    pairs = torch.complex(x[..., :half], x[..., half:size])
    turned = pairs * torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.cat([turned.real, turned.imag, x[..., size:]], dim=-1)


def attention(q: Tensor, k: Tensor, v: Tensor, sees: Tensor) -> Tensor:
    """q [L, H, E]; several query heads in a row share a key/value head."""
    shared = q.shape[1] // k.shape[1]
    heads = []
    for h in range(q.shape[1]):
        scores = q[:, h] @ k[:, h // shared].T / q.shape[-1] ** 0.5
        heads.append(scores.masked_fill(~sees, -torch.inf).softmax(-1) @ v[:, h // shared])
    return torch.cat(heads, dim=-1)


def mlp(w: Weights, prefix: str, x: Tensor) -> Tensor:
    return swiglu(x, *(w[f"{prefix}{part}_proj.weight"] for part in ("gate", "up", "down")))


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    g = x @ gate.T
    return (g * g.sigmoid() * (x @ up.T)) @ down.T
