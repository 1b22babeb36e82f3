"""DiffusionGemma written plainly, for one row: from the published description (Gemma 4's layers; an
encoder that attends causally, a decoder that attends to it and in both directions to its canvas;
self-conditioning), over the published names of the weights, without cache, batch or packing.

Loops over heads, queries and experts, in fp64.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu

Weights = dict[str, Tensor]

DECODER = "model.decoder."
ENCODER_LAYERS = "model.encoder.language_model.layers."


class PlainGemma:
    """A checkpoint's text part."""

    def __init__(self, weights: Weights, config: dict[str, Any]) -> None:
        self.weights = {key: tensor.double() for key, tensor in weights.items()}
        self.text: dict[str, Any] = config["text_config"]
        self.kinds: list[str] = self.text["layer_types"]
        self.embeddings = self.weights[DECODER + "embed_tokens.weight"]

    def logits(
        self, context: list[int], canvas: list[int], conditioned_by: Tensor | None = None
    ) -> Tensor:
        """[canvas, vocabulary]; `conditioned_by` are the logits of the forward before."""
        past = self.encode(context)
        positions = list(range(len(context), len(context) + len(canvas)))
        hidden = self._condition(self._embed(canvas), conditioned_by)
        for index, kind in enumerate(self.kinds):
            hidden, _ = self._layer(index, hidden, positions, past[index], self._canvas_keys(kind))
            hidden = hidden * self.weights[f"{DECODER}layers.{index}.layer_scalar"]
        logits = self._norm(hidden, DECODER + "norm") @ self.embeddings.T
        return 30 * torch.tanh(logits / 30)

    def encode(self, context: list[int]) -> list[tuple[Tensor, Tensor]]:
        """Each layer's keys and values of the context."""
        positions = list(range(len(context)))
        hidden, kept = self._embed(context), []
        for index, kind in enumerate(self.kinds):
            hidden, kv = self._layer(index, hidden, positions, None, self._context_keys(kind))
            hidden = hidden * self.weights[f"{ENCODER_LAYERS}{index}.layer_scalar"]
            kept.append(kv)
        return kept

    def _context_keys(self, kind: str) -> Any:
        window = self.text["sliding_window"] if kind == "sliding_attention" else math.inf
        return lambda query, key, start: key <= query and query - key < window

    def _canvas_keys(self, kind: str) -> Any:
        window = self.text["sliding_window"] if kind == "sliding_attention" else math.inf
        return lambda query, key, start: start - key < window

    def _embed(self, tokens: list[int]) -> Tensor:
        embedded: Tensor = self.embeddings[tokens] * self.text["hidden_size"] ** 0.5
        return embedded

    def _condition(self, embedded: Tensor, logits: Tensor | None) -> Tensor:
        soft = torch.zeros_like(embedded)
        if logits is not None:
            soft = logits.double().softmax(-1) @ self.embeddings * self.text["hidden_size"] ** 0.5
        name = DECODER + "self_conditioning."
        signal = self._gated(self._norm(soft, name + "pre_norm"), name)
        return self._norm(embedded + signal)

    def _layer(
        self,
        index: int,
        hidden: Tensor,
        positions: list[int],
        past: tuple[Tensor, Tensor] | None,
        allowed: Any,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        name = f"{DECODER}layers.{index}."
        normed = self._norm(hidden, name + "input_layernorm")
        attended, kv = self._attend(index, normed, positions, past, allowed)
        hidden = hidden + self._norm(attended, name + "post_attention_layernorm")
        dense = self._norm(hidden, name + "pre_feedforward_layernorm")
        dense = self._gated(dense, name + "mlp.")
        dense = self._norm(dense, name + "post_feedforward_layernorm_1")
        routed = self._norm(self._experts(hidden, name), name + "post_feedforward_layernorm_2")
        both = self._norm(dense + routed, name + "post_feedforward_layernorm")
        return hidden + both, kv

    def _attend(
        self,
        index: int,
        normed: Tensor,
        positions: list[int],
        past: tuple[Tensor, Tensor] | None,
        allowed: Any,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        name = f"{DECODER}layers.{index}.self_attn."
        size = len(self.weights[name + "k_norm.weight"])
        queries = self._heads(normed, name + "q_proj", size)
        keys = plain_keys = self._heads(normed, name + "k_proj", size)
        has_values = name + "v_proj.weight" in self.weights
        values = self._heads(normed, name + "v_proj", size) if has_values else plain_keys
        queries = self._rotate(self._norm(queries, name + "q_norm"), positions, index)
        keys = self._rotate(self._norm(keys, name + "k_norm"), positions, index)
        own = keys, self._norm(values)
        all_keys, all_values = own if past is None else map(torch.cat, zip(past, own, strict=True))
        shared = queries.shape[1] // keys.shape[1]
        context = torch.zeros_like(queries)
        for row, position in enumerate(positions):
            seen = [key for key in range(len(all_keys)) if allowed(position, key, positions[0])]
            for head in range(queries.shape[1]):
                group = head // shared
                scores = all_keys[seen, group] @ queries[row, head]
                context[row, head] = scores.softmax(0) @ all_values[seen, group]
        return context.flatten(1) @ self.weights[name + "o_proj.weight"].T, own

    def _heads(self, x: Tensor, name: str, size: int) -> Tensor:
        return (x @ self.weights[name + ".weight"].T).view(len(x), -1, size)

    def _rotate(self, x: Tensor, positions: list[int], index: int) -> Tensor:
        """Pairs (i, i + size / 2) turn by position * theta ** (-2i / size); in layers of full
        attention only a quarter of the pairs do."""
        full = self.kinds[index] == "full_attention"
        theta, share = (1e6, 0.25) if full else (1e4, 1.0)
        half = x.shape[-1] // 2
        turned = x.clone()
        for pair in range(int(share * half)):
            angles = torch.tensor(positions).double() * theta ** (-pair / half)
            cos, sin = angles.cos()[:, None], angles.sin()[:, None]
            first, second = x[..., pair], x[..., pair + half]
            turned[..., pair] = first * cos - second * sin
            turned[..., pair + half] = second * cos + first * sin
        return turned

    def _experts(self, hidden: Tensor, name: str) -> Tensor:
        scores = self._norm(hidden) * self.weights[name + "router.scale"]
        scores = scores * self.text["hidden_size"] ** -0.5
        chances = (scores @ self.weights[name + "router.proj.weight"].T).softmax(-1)
        normed = self._norm(hidden, name + "pre_feedforward_layernorm_2")
        output = torch.zeros_like(hidden)
        for row in range(len(hidden)):
            best = chances[row].argsort(descending=True)[: self.text["top_k_experts"]]
            for expert in best.tolist():
                weight = chances[row, expert] / chances[row, best].sum()
                weight = weight * self.weights[name + "router.per_expert_scale"][expert]
                gate, up = self.weights[name + "experts.gate_up_proj"][expert].chunk(2)
                inner = gelu(gate @ normed[row], approximate="tanh") * (up @ normed[row])
                output[row] += weight * (self.weights[name + "experts.down_proj"][expert] @ inner)
        return output

    def _gated(self, x: Tensor, name: str) -> Tensor:
        gate, up, down = (self.weights[f"{name}{part}_proj.weight"] for part in _PARTS)
        return (gelu(x @ gate.T, approximate="tanh") * (x @ up.T)) @ down.T

    def _norm(self, x: Tensor, name: str | None = None) -> Tensor:
        normed = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
        return normed if name is None else normed * self.weights[name + ".weight"]


_PARTS = ("gate", "up", "down")
