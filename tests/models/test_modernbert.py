"""ModernBERT checkpoints, as published, give the logits of a plain implementation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from raydiff.errors import ModelError
from raydiff.families import load_spec
from raydiff.models.denoiser import Denoiser
from raydiff.models.loading import load_denoiser
from tests.models.published import Weights, random_weights, write_checkpoint

VOCAB, WIDTH, LAYERS, HEADS, INNER, PLACES = 40, 32, 4, 4, 24, 64
EPS, WINDOW, EVERY = 1e-5, 6, 3
THETA = {"global": 160000.0, "local": 100.0}
SPECIAL_IDS = {"[CLS]": 35, "[SEP]": 36, "[PAD]": 37, "[MASK]": 38}

CONFIG: dict[str, Any] = {
    "model_type": "modernbert",
    "architectures": ["ModernBertForMaskedLM"],
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": PLACES,
    "norm_eps": EPS,
    "local_attention": WINDOW,
    "pad_token_id": 37,
    "bos_token_id": 35,
    "eos_token_id": 36,
    "cls_token_id": 35,
    "sep_token_id": 36,
}
ON_THE_HUB = {
    "global_attn_every_n_layers": EVERY,
    "global_rope_theta": THETA["global"],
    "local_rope_theta": THETA["local"],
}
SAVED_AGAIN = {
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": THETA["global"]},
        "sliding_attention": {"rope_type": "default", "rope_theta": THETA["local"]},
    },
}


def published_weights() -> Weights:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embeddings.tok_embeddings.weight": (VOCAB, WIDTH),
        "model.embeddings.norm.weight": (WIDTH,),
        "model.final_norm.weight": (WIDTH,),
        "head.dense.weight": (WIDTH, WIDTH),
        "head.norm.weight": (WIDTH,),
        "decoder.bias": (VOCAB,),
    }
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.attn.Wqkv.weight": (3 * WIDTH, WIDTH),
            f"{layer}.attn.Wo.weight": (WIDTH, WIDTH),
            f"{layer}.mlp.Wi.weight": (2 * INNER, WIDTH),
            f"{layer}.mlp.Wo.weight": (WIDTH, INNER),
            f"{layer}.mlp_norm.weight": (WIDTH,),
        }
        if i:  # the first layer's input is normalised already
            shapes[f"{layer}.attn_norm.weight"] = (WIDTH,)
    return random_weights(shapes)


def turn(x_LE: Tensor, places_L: Tensor, theta: float) -> Tensor:
    """Rotate pairs (i, i + E / 2) by place * theta^(-2i / E)."""
    half = x_LE.shape[1] // 2
    angles = places_L[:, None] * theta ** (-torch.arange(half) / half)
    a, b = x_LE[:, :half], x_LE[:, half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def plain_logits(w: Weights, tokens_L: Tensor, places_L: Tensor, sees_LL: Tensor) -> Tensor:
    """Logits [L, V] of one row after Warner et al. 2024, one head at a time."""

    def norm(key: str, x: Tensor) -> Tensor:
        return layer_norm(x, (WIDTH,), w[f"{key}.weight"], None, EPS)

    words_VD = w["model.embeddings.tok_embeddings.weight"]
    x = norm("model.embeddings.norm", words_VD[tokens_L])
    far_LL = (places_L[:, None] - places_L).abs() > WINDOW / 2
    size = WIDTH // HEADS
    for i in range(LAYERS):
        layer, everywhere = f"model.layers.{i}", i % EVERY == 0
        theta = THETA["global" if everywhere else "local"]
        hidden_LL = ~sees_LL if everywhere else ~sees_LL | far_LL
        q, k, v = (
            (norm(f"{layer}.attn_norm", x) if i else x) @ w[f"{layer}.attn.Wqkv.weight"].T
        ).chunk(3, -1)
        heads = []
        for h in range(HEADS):
            part = slice(h * size, (h + 1) * size)
            q_LE, k_LE = (turn(t[:, part], places_L, theta) for t in (q, k))
            scores_LL = (q_LE @ k_LE.T / math.sqrt(size)).masked_fill(hidden_LL, -math.inf)
            heads.append(scores_LL.softmax(-1) @ v[:, part])
        x = x + torch.cat(heads, -1) @ w[f"{layer}.attn.Wo.weight"].T
        inner, gate = (norm(f"{layer}.mlp_norm", x) @ w[f"{layer}.mlp.Wi.weight"].T).chunk(2, -1)
        x = x + (gelu(inner) * gate) @ w[f"{layer}.mlp.Wo.weight"].T
    x = norm("model.final_norm", x)
    return norm("head.norm", gelu(x @ w["head.dense.weight"].T)) @ words_VD.T + w["decoder.bias"]


@pytest.fixture(params=[ON_THE_HUB, SAVED_AGAIN], ids=["on the hub", "saved again"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Both forms that its config has had."""
    return write_checkpoint(tmp_path, CONFIG | request.param, published_weights(), SPECIAL_IDS)


def load(folder: Path) -> Denoiser:
    return load_denoiser(folder, "cpu", "fp32")


def test_logits_equal_a_plain_implementation(checkpoint: Path) -> None:
    """Whatever the padding, the mask and the place in the batch; local layers see neighbours."""
    lengths, longest = (7, 16, 12), 16
    tokens_BL = torch.randint(0, 35, (3, longest), generator=torch.Generator().manual_seed(1))
    live_BL = torch.arange(longest) < torch.tensor(lengths)[:, None]
    tokens_BL[~live_BL] = 37
    segments_BL = torch.arange(longest).expand(3, -1) // torch.tensor([20, 4, 3])[:, None]
    mask_BLL = (segments_BL[:, :, None] >= segments_BL[:, None, :]) & live_BL[:, None, :]
    places_BL = torch.arange(longest).repeat(3, 1)
    places_BL[2] += 9
    places_BL[~live_BL] = 0
    denoiser = load(checkpoint)
    hidden_BLD, _ = denoiser.forward(tokens_BL, places_BL, mask_BLL, None, False, live_BL)
    for row, length in enumerate(lengths):
        expected_LV = plain_logits(
            published_weights(),
            tokens_BL[row, :length],
            places_BL[row, :length],
            mask_BLL[row, :length, :length],
        )
        assert torch.allclose(denoiser.logits(hidden_BLD[row, :length]), expected_LV, atol=1e-4)


def test_a_row_over_a_cache_equals_the_plain_implementation(checkpoint: Path) -> None:
    denoiser = load(checkpoint)
    tokens_1L = torch.randint(0, 35, (1, 15), generator=torch.Generator().manual_seed(2))
    places_1L = torch.arange(15)[None]
    past = denoiser.encode(tokens_1L[:, :9], places_1L[:, :9], None, None)
    hidden_1LD, _ = denoiser.forward(tokens_1L[:, 9:], places_1L[:, 9:], None, past, False)
    sees_LL = torch.ones(15, 15, dtype=torch.bool)
    sees_LL[:9, 9:] = False
    expected_LV = plain_logits(published_weights(), tokens_1L[0], places_1L[0], sees_LL)
    assert torch.allclose(denoiser.logits(hidden_1LD[0]), expected_LV[9:], atol=1e-4)
    (group,) = denoiser.spec.kv
    assert past[0].shape == (group.layers, 2, 1, group.heads, 9, group.head_dim)


def test_the_spec_says_how_to_continue_a_text(checkpoint: Path) -> None:
    spec = load_spec(checkpoint)
    assert (spec.family, spec.attention, spec.noise) == ("modernbert", "full", "absorbing")
    assert (spec.mask_id, spec.prompt_prefix_ids, spec.end_ids) == (38, (35,), (36,))
    assert (spec.context_length, spec.cache, spec.shift) == (PLACES, "none", False)


@pytest.mark.parametrize("change", ["missing", "extra", "misshaped"])
def test_a_tensor_that_does_not_fit_is_named(tmp_path: Path, change: str) -> None:
    weights, key = published_weights(), "model.layers.2.mlp.Wi.weight"
    if change == "missing":
        del weights[key]
    elif change == "extra":
        key = "model.layers.0.attn_norm.weight"
        weights[key] = torch.ones(WIDTH)
    else:
        weights[key] = torch.zeros(INNER, WIDTH)
    folder = write_checkpoint(tmp_path, CONFIG | ON_THE_HUB, weights, SPECIAL_IDS)
    with pytest.raises(ModelError, match=key.replace(".", r"\.")):
        load(folder)


def test_scaled_rotary_positions_are_refused_by_name(tmp_path: Path) -> None:
    scaled = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    folder = write_checkpoint(tmp_path, CONFIG | scaled, published_weights(), SPECIAL_IDS)
    with pytest.raises(ModelError, match="yarn"):
        load_spec(folder)
