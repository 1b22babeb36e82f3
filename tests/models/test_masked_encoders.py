"""BERT and RoBERTa checkpoints, as published, give the logits of a plain implementation."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from raydiff.errors import ModelError
from raydiff.families import load_spec
from raydiff.models.denoiser import Denoiser
from raydiff.models.loading import load_denoiser
from raydiff.request import Decoding
from tests.models.published import Weights, random_weights, write_checkpoint

VOCAB, WIDTH, LAYERS, HEADS, INNER, PLACES = 40, 32, 2, 4, 48, 24
EPS = 1e-5


@dataclass(frozen=True)
class Kind:
    """What a published checkpoint of a kind looks like."""

    name: str
    scale: str
    """Last part of the keys of layer norms' scales, and of their biases."""
    bias: str
    head: tuple[str, str, str]
    """Keys of the head's dense layer, its layer norm and its output bias."""
    unused: dict[str, tuple[int, ...]]
    first_position: int
    pad_id: int
    special_ids: dict[str, int]
    classes: str


BERT = Kind(
    name="bert",
    scale="gamma",
    bias="beta",
    head=(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    ),
    unused={
        "bert.pooler.dense.weight": (WIDTH, WIDTH),
        "bert.pooler.dense.bias": (WIDTH,),
        "cls.seq_relationship.weight": (2, WIDTH),
        "cls.seq_relationship.bias": (2,),
    },
    first_position=0,
    pad_id=0,
    special_ids={"[PAD]": 0, "[CLS]": 5, "[SEP]": 6, "[MASK]": 7},
    classes="BertForMaskedLM",
)
ROBERTA = Kind(
    name="roberta",
    scale="weight",
    bias="bias",
    head=("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    unused={},
    first_position=2,
    pad_id=1,
    special_ids={"<s>": 0, "<pad>": 1, "</s>": 2, "<mask>": 39},
    classes="RobertaForMaskedLM",
)
KINDS = [pytest.param(kind, id=kind.name) for kind in (BERT, ROBERTA)]


def published_weights(kind: Kind) -> Weights:
    name, types = kind.name, 2 if kind is BERT else 1
    dense, norm, bias = kind.head
    shapes: dict[str, tuple[int, ...]] = {
        f"{name}.embeddings.word_embeddings.weight": (VOCAB, WIDTH),
        f"{name}.embeddings.position_embeddings.weight": (PLACES + kind.first_position, WIDTH),
        f"{name}.embeddings.token_type_embeddings.weight": (types, WIDTH),
        f"{dense}.weight": (WIDTH, WIDTH),
        f"{dense}.bias": (WIDTH,),
        bias: (VOCAB,),
        **kind.unused,
    }
    norms = [f"{name}.embeddings.LayerNorm", norm]
    for i in range(LAYERS):
        layer = f"{name}.encoder.layer.{i}"
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        for part, (out, into) in {
            "attention.self.query": (WIDTH, WIDTH),
            "attention.self.key": (WIDTH, WIDTH),
            "attention.self.value": (WIDTH, WIDTH),
            "attention.output.dense": (WIDTH, WIDTH),
            "intermediate.dense": (INNER, WIDTH),
            "output.dense": (WIDTH, INNER),
        }.items():
            shapes |= {f"{layer}.{part}.weight": (out, into), f"{layer}.{part}.bias": (out,)}
    for key in norms:
        shapes |= {f"{key}.{kind.scale}": (WIDTH,), f"{key}.{kind.bias}": (WIDTH,)}
    return random_weights(shapes)


def published_config(kind: Kind) -> dict[str, Any]:
    return {
        "model_type": kind.name,
        "architectures": [kind.classes],
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "max_position_embeddings": PLACES + kind.first_position,
        "type_vocab_size": 2 if kind is BERT else 1,
        "layer_norm_eps": EPS,
        "pad_token_id": kind.pad_id,
        "hidden_act": "gelu",
    }


def plain_logits(
    w: Weights, kind: Kind, tokens_L: Tensor, places_L: Tensor, sees_LL: Tensor
) -> Tensor:
    """Logits [L, V] of one row after Devlin et al. 2018, one head at a time."""

    def dense(key: str, x: Tensor) -> Tensor:
        return x @ w[f"{key}.weight"].T + w[f"{key}.bias"]

    def norm(key: str, x: Tensor) -> Tensor:
        return layer_norm(x, (WIDTH,), w[f"{key}.{kind.scale}"], w[f"{key}.{kind.bias}"], EPS)

    table = f"{kind.name}.embeddings"
    words_VD = w[f"{table}.word_embeddings.weight"]
    x = words_VD[tokens_L] + w[f"{table}.token_type_embeddings.weight"][0]
    x = x + w[f"{table}.position_embeddings.weight"][places_L + kind.first_position]
    x = norm(f"{table}.LayerNorm", x)
    size = WIDTH // HEADS
    for i in range(LAYERS):
        layer = f"{kind.name}.encoder.layer.{i}"
        q, k, v = (dense(f"{layer}.attention.self.{n}", x) for n in ("query", "key", "value"))
        heads = []
        for h in range(HEADS):
            part = slice(h * size, (h + 1) * size)
            scores_LL = (q[:, part] @ k[:, part].T / math.sqrt(size)).masked_fill(
                ~sees_LL, -math.inf
            )
            heads.append(scores_LL.softmax(-1) @ v[:, part])
        attended = dense(f"{layer}.attention.output.dense", torch.cat(heads, -1))
        x = norm(f"{layer}.attention.output.LayerNorm", x + attended)
        inner = gelu(dense(f"{layer}.intermediate.dense", x))
        x = norm(f"{layer}.output.LayerNorm", x + dense(f"{layer}.output.dense", inner))
    head, head_norm, head_bias = kind.head
    return norm(head_norm, gelu(dense(head, x))) @ words_VD.T + w[head_bias]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def checkpoint(kind: Kind, tmp_path: Path) -> Path:
    config, weights = published_config(kind), published_weights(kind)
    return write_checkpoint(tmp_path, config, weights, kind.special_ids)


def load(folder: Path) -> Denoiser:
    denoiser = load_denoiser(folder, "cpu", "fp32")
    assert hasattr(denoiser, "encode")
    return denoiser


def test_logits_equal_a_plain_implementation(kind: Kind, checkpoint: Path) -> None:
    """Whatever the padding, the mask and the place in the batch."""
    lengths, longest = (5, 11, 8), 11
    tokens_BL = torch.randint(8, 38, (3, longest), generator=torch.Generator().manual_seed(1))
    live_BL = torch.arange(longest) < torch.tensor(lengths)[:, None]
    tokens_BL[~live_BL] = kind.pad_id
    segments_BL = torch.arange(longest).expand(3, -1) // torch.tensor([20, 4, 3])[:, None]
    mask_BLL = (segments_BL[:, :, None] >= segments_BL[:, None, :]) & live_BL[:, None, :]
    places_BL = torch.arange(longest).repeat(3, 1)
    places_BL[2] += 9
    places_BL[~live_BL] = 0
    denoiser = load(checkpoint)
    hidden_BLD, _ = denoiser.forward(tokens_BL, places_BL, mask_BLL, None, False, live_BL)
    weights = published_weights(kind)
    for row, length in enumerate(lengths):
        expected_LV = plain_logits(
            weights,
            kind,
            tokens_BL[row, :length],
            places_BL[row, :length],
            mask_BLL[row, :length, :length],
        )
        logits_LV = denoiser.logits(hidden_BLD[row, :length])
        assert torch.allclose(logits_LV, expected_LV, atol=1e-4)


def test_a_row_over_a_cache_equals_the_plain_implementation(kind: Kind, checkpoint: Path) -> None:
    denoiser, weights = load(checkpoint), published_weights(kind)
    tokens_1L, places_1L = torch.randint(8, 38, (1, 9)), torch.arange(9)[None]
    past = denoiser.encode(tokens_1L[:, :4], places_1L[:, :4], None, None)
    hidden_1LD, _ = denoiser.forward(tokens_1L[:, 4:], places_1L[:, 4:], None, past, False)
    sees_LL = torch.ones(9, 9, dtype=torch.bool)
    sees_LL[:4, 4:] = False
    expected_LV = plain_logits(weights, kind, tokens_1L[0], places_1L[0], sees_LL)
    assert torch.allclose(denoiser.logits(hidden_1LD[0]), expected_LV[4:], atol=1e-4)


def test_the_spec_says_how_to_continue_a_text(kind: Kind, checkpoint: Path) -> None:
    """[CLS], the text, then masks; [SEP] ends it, and nothing attends beyond."""
    spec = load_spec(checkpoint)
    begin, end = (5, 6) if kind is BERT else (0, 2)
    assert (spec.family, spec.attention, spec.noise, spec.shift) == (
        kind.name,
        "full",
        "absorbing",
        False,
    )
    assert spec.mask_id == (7 if kind is BERT else 39)
    assert (spec.prompt_prefix_ids, spec.end_ids) == ((begin,), (end,))
    assert set(spec.forbidden_ids) == {begin, kind.pad_id}
    assert (spec.context_length, spec.max_prompt_tokens) == (PLACES, PLACES - 1)
    assert spec.cache == "none"
    assert spec.drop_after_end


def test_an_encoder_tuned_as_a_denoiser_ends_a_text_with_padding(
    kind: Kind, checkpoint: Path
) -> None:
    """It has learnt to predict and to see padding, and to put chats between tags of plain text."""
    pad = next(token for token, i in kind.special_ids.items() if i == kind.pad_id)
    file = checkpoint / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pad_token": pad, "eos_token": pad}))
    spec = load_spec(checkpoint)
    assert spec.end_ids == (kind.pad_id, 6 if kind is BERT else 2)
    assert kind.pad_id not in spec.forbidden_ids
    assert not spec.drop_after_end
    assert spec.resolve(Decoding()).stop == ("[/Answer]",)
    assert spec.resolve(Decoding(stop=("x",))).stop == ("x",)
    turns = [
        {"role": "system", "content": "Be brief. "},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Why?"},
    ]
    template = jinja2.Environment().from_string(spec.chat_template or "")
    assert template.render(messages=turns, add_generation_prompt=True) == (
        "[SYS]\nBe brief.\n[/SYS]\n\n[Question]\nHi\n[/Question]\n\n[Answer]\nYes?\n[/Answer]\n\n"
        "[Question]\nWhy?\n[/Question]\n\n[Answer]\n"
    )


@pytest.mark.parametrize("change", ["missing", "extra", "misshaped"])
def test_a_tensor_that_does_not_fit_is_named(kind: Kind, tmp_path: Path, change: str) -> None:
    weights = published_weights(kind)
    key = f"{kind.name}.encoder.layer.1.intermediate.dense.weight"
    if change == "missing":
        del weights[key]
    elif change == "extra":
        key = f"{kind.name}.encoder.layer.7.intermediate.dense.weight"
        weights[key] = torch.zeros(2)
    else:
        weights[key] = torch.zeros(INNER, WIDTH + 1)
    folder = write_checkpoint(tmp_path, published_config(kind), weights, kind.special_ids)
    with pytest.raises(ModelError, match=key.replace(".", r"\.")):
        load(folder)


def test_an_encoder_without_the_head_that_predicts_tokens_is_no_denoiser(
    kind: Kind, tmp_path: Path
) -> None:
    config = published_config(kind) | {"architectures": ["BertForSequenceClassification"]}
    folder = write_checkpoint(tmp_path, config, published_weights(kind), kind.special_ids)
    with pytest.raises(ModelError, match="family"):
        load_spec(folder)


def test_a_tokenizer_without_a_mask_token_is_refused_by_name(kind: Kind, tmp_path: Path) -> None:
    config = published_config(kind)
    folder = write_checkpoint(tmp_path, config, published_weights(kind), {"x": 3})
    with pytest.raises(ModelError, match="mask_token"):
        load_spec(folder)
