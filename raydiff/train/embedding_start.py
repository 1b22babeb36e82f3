"""A start from which a tiny denoiser of embeddings copies before it has learnt anything.

Hidden dimensions are split: words as they come in, words taken over from the prompt, positions. The
first attention to the prompt looks, by position, at the token of the same offset and takes its word
over; the output reads both kinds of words. So the untrained model already leans towards the
prompt's first words (`raydiff.train.start` does the same for tokens). Shapes: V pieces, E embedding
width, D hidden size, P positions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from transformers.models.bert.modeling_bert import BertSelfAttention

from raydiff.models.embedding import EmbeddingNetwork
from raydiff.spec import Prediction

DEVIATION = 0.5
"""Of the random weights, times the root of their inputs' number."""
WAVE_SCALE = 1.7
SIDE_SCALE = 3.0
"""How strongly a position says whether it is the prompt's or the target's."""
SHARPNESS = 1.5
"""How narrowly the first attention looks at one offset."""
PROMPT_PULL = 6.0
"""How much it prefers the prompt's tokens to the target's own."""
COPIED = 0.12
"""Share of a copied word in the clean embedding first predicted."""
LINEAR = 0.2
"""Inputs of a projection's tanh are brought into its linear middle."""
SLOWEST = 200.0


def copying_start(
    model: EmbeddingNetwork, words_VE: Tensor, prompt_tokens: int, prediction: Prediction
) -> None:
    """Set a new model's weights. `prompt_tokens` is where targets begin in DiffuSeq's layout."""
    width = words_VE.shape[1]
    cross = hasattr(model, "encoder")
    hidden = model.LayerNorm.normalized_shape[0]
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(std=DEVIATION * module.in_features**-0.5)
                module.bias.zero_()
        model.word_embedding.weight.copy_(words_VE)
        offsets = torch.arange(model.position_embeddings.num_embeddings)
        # a target's first word is where the prompt has its own, after the begin token
        shifted = torch.where(offsets < prompt_tokens, offsets, offsets - prompt_tokens + 1)
        places = hidden - 2 * width - 2
        table = model.position_embeddings.weight.zero_()
        table[:, 2 * width : 2 * width + places] = WAVE_SCALE * _waves(
            offsets if cross else shifted, places
        )
        if not cross:
            table[:, -1] = SIDE_SCALE * (1 - 2 * (offsets >= prompt_tokens).float())
        _carry(model.input_up_proj, width, [(0, 0, 1.0)])
        _carry(model.output_down_proj, width, _output(prediction, width))
        first = model.input_transformers.layer[0]
        attention = first.crossattention if cross else first.attention
        _look(attention.self, width, places, turn=1 if cross else 0, sided=not cross)
        copy = torch.zeros(hidden, hidden)
        copy[width : 2 * width, :width] = torch.eye(width)
        attention.self.value.weight.copy_(copy)
        attention.output.dense.weight.copy_(torch.eye(hidden))
        if cross:
            model.encoder_emb.weight.zero_()
            model.encoder_emb.weight[:, :width] = words_VE


def _output(prediction: Prediction, width: int) -> list[tuple[int, int, float]]:
    """What the output reads: (from hidden dimension, to embedding dimension, factor)."""
    if prediction == "x0":
        return [(0, 0, COPIED), (width, 0, COPIED)]
    # noise, and noise - x0, are nearly what comes in where there is much of it
    return [(0, 0, 0.75), (width, 0, -COPIED if prediction == "velocity" else -COPIED / 3)]


def _carry(projection: nn.Module, width: int, parts: list[tuple[int, int, float]]) -> None:
    """Let both layers of a projection carry words through, nearly linearly."""
    assert isinstance(projection, nn.Sequential)
    inner, outer = projection[0], projection[2]
    assert isinstance(inner, nn.Linear)
    assert isinstance(outer, nn.Linear)
    inner.weight.mul_(0.1)
    outer.weight.mul_(0.1)
    words = torch.eye(width)
    for source, goal, factor in parts:
        inner.weight[source : source + width, source : source + width] += LINEAR * words
        outer.weight[goal : goal + width, source : source + width] += factor / LINEAR * words


def _look(attention: BertSelfAttention, width: int, places: int, turn: int, sided: bool) -> None:
    """Queries meet keys of the same position, or of the one `turn` further on."""
    hidden, heads = attention.query.in_features, attention.num_attention_heads
    size = hidden // heads
    used = min(places, size - 1) // 2 * 2
    queries, keys = torch.zeros(hidden, hidden), torch.zeros(hidden, hidden)
    ahead = _turned(used, places, turn)
    begin = 2 * width
    for head in range(heads):
        rows = slice(head * size, head * size + used)
        keys[rows, begin : begin + used] = SHARPNESS * torch.eye(used)
        queries[rows, begin : begin + used] = SHARPNESS * ahead
        if sided:
            attention.query.bias[(head + 1) * size - 1] = PROMPT_PULL
            keys[(head + 1) * size - 1, hidden - 1] = 1.0
    attention.query.weight.copy_(queries)
    attention.key.weight.copy_(keys)


def _rates(places: int) -> Tensor:
    pairs = places // 2
    return torch.exp(-math.log(SLOWEST) * torch.arange(pairs) / pairs)


def _waves(offsets_P: Tensor, places: int) -> Tensor:
    """[P, places] sine and cosine by turns, alike for near offsets."""
    angles = offsets_P[:, None] * _rates(places)
    waves = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
    return nn.functional.pad(waves, (0, places - waves.shape[1]))


def _turned(used: int, places: int, by: int) -> Tensor:
    """[used, used] matrix that turns the waves of a position into those `by` further on."""
    matrix = torch.zeros(used, used)
    for pair, rate in enumerate(_rates(places)[: used // 2].tolist()):
        sine, cosine = math.sin(rate * by), math.cos(rate * by)
        block = torch.tensor([[cosine, sine], [-sine, cosine]])
        matrix[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = block
    return matrix
