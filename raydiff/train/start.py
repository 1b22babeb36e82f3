"""A start from which a tiny BERT learns to copy at once instead of after millions of tokens.

Words and positions have dimensions of their own in the embeddings. In the first layer each target
position attends, by position, to the prompt token at the same offset and takes over its word; the
head starts as the identity. With unrelated words the untrained model already writes about half of
the prompt's first words; with real ones, whose embeddings lie close together, it only begins nearer
to copying, and training does the rest. Shapes: V pieces, D hidden size, W of its dimensions for
words, P positions.
"""

from __future__ import annotations

import math

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertModel

from raydiff.train.transplant import HEAD_BIAS, embed_pieces, start_folder

WORD_SHARE = 0.75
"""Dimensions for words; the rest are for positions, two of them for the token type."""
SCALE = 0.05
POSITION_SCALE = 1.2
TYPE_SCALE = 3.0
SHARPNESS = 1.5
"""How narrowly the first layer looks at one offset."""
PROMPT_PULL = 6.0
"""How much it prefers the prompt's tokens to the target's own."""
COPY_SHARE = 0.7
HEAD_SCALE = 3.0


def random_words(vocab_size: int, width: int, seed: int) -> Tensor:
    """[V, W]: unrelated words."""
    return torch.randn(vocab_size, width, generator=torch.Generator().manual_seed(seed))


def pretrained_words(tokenizer: Tokenizer, width: int, seed: int) -> Tensor:
    """[V, W]: MiniLM's word embeddings, spelled in the pieces of `tokenizer`, by their `width`
    first principal components, each scaled to the root of its spread.

    Raises:
        ModuleNotFoundError: the package with MiniLM is not installed.
    """
    folder = start_folder()
    old = BertModel.from_pretrained(str(folder), add_pooling_layer=False)
    spelling = Tokenizer.from_file(str(folder / "tokenizer.json"))
    spelling.no_padding()
    spelling.no_truncation()
    pieces_VX = embed_pieces(tokenizer, spelling, old.embeddings.word_embeddings.weight, seed)
    left_VX, spread_X, _ = torch.linalg.svd(pieces_VX - pieces_VX.mean(0), full_matrices=False)
    words_VW = left_VX[:, :width] * spread_X[:width].sqrt()
    normed_VW: Tensor = (words_VW / words_VW.square().mean().sqrt()).detach()
    return normed_VW


def word_width(config: BertConfig) -> int:
    """W, the dimensions of a word."""
    return int(config.hidden_size * WORD_SHARE)


def copying_start(config: BertConfig, target_position: int, words_VW: Tensor) -> BertForMaskedLM:
    """The start; its remaining weights are torch's random ones."""
    model = BertForMaskedLM(config)
    with torch.no_grad():
        _embed(model, target_position, words_VW)
        _copy_by_position(model, words_VW.shape[1])
        head = model.cls.predictions
        head.transform.dense.weight.copy_(torch.eye(config.hidden_size))
        head.transform.dense.bias.fill_(HEAD_BIAS)
        head.transform.LayerNorm.weight.fill_(HEAD_SCALE)
        head.bias.zero_()
    return model


def _embed(model: BertForMaskedLM, target_position: int, words_VW: Tensor) -> None:
    table = model.bert.embeddings
    width, hidden = words_VW.shape[1], model.config.hidden_size
    places = hidden - width - 2
    count = model.config.max_position_embeddings
    # Offset 0 of a target is where a prompt has its first word, after the begin token.
    offsets = torch.arange(count)
    offsets = torch.where(offsets < target_position, offsets, offsets - target_position + 1)
    words, positions, types = (
        embedding.weight
        for embedding in (
            table.word_embeddings,
            table.position_embeddings,
            table.token_type_embeddings,
        )
    )
    for weight in (words, positions, types):
        weight.zero_()
    words[:, :width] = words_VW * SCALE
    waves_PX = _waves(offsets, places) * (math.sqrt(2) * POSITION_SCALE * SCALE)
    positions[:, width : width + places] = waves_PX
    for kind, sign in enumerate((-1, 1)):
        types[kind, hidden - 2] = sign * TYPE_SCALE * SCALE


def _copy_by_position(model: BertForMaskedLM, width: int) -> None:
    layer, config = model.bert.encoder.layer[0], model.config
    hidden, heads = config.hidden_size, config.num_attention_heads
    size, places = hidden // heads, hidden - width - 2
    # A head has room for all places but its last dimension, which tells prompt from target.
    used = min(places, size - 1)
    look = torch.zeros(hidden, hidden)
    for head in range(heads):
        rows = torch.arange(used) + head * size
        look[rows, width + torch.arange(used)] = SHARPNESS
    attention = layer.attention.self
    attention.query.weight.copy_(look)
    attention.key.weight.copy_(look)
    for head in range(heads):
        last = (head + 1) * size - 1
        attention.query.bias[last] = PROMPT_PULL
        attention.key.weight[last, hidden - 2] = -1.0
    attention.value.weight.copy_(torch.eye(hidden))
    layer.attention.output.dense.weight.copy_(torch.eye(hidden) * COPY_SHARE)


def _waves(offsets_P: Tensor, width: int) -> Tensor:
    """Sines and cosines [P, width], like for near offsets."""
    pairs = width // 2
    rates = torch.exp(-math.log(200.0) * torch.arange(pairs) / pairs)
    angles = offsets_P[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)
