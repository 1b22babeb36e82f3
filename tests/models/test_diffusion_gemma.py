"""DiffusionGemma's network: our forward, an independent plain one and the stock one agree."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor

from raydiff.models import diffusion_gemma
from raydiff.models.denoiser import Cache
from raydiff.models.diffusion_gemma import DiffusionGemmaDenoiser
from tests.models.plain_gemma import PlainGemma
from tests.models.tiny_gemma import (
    CANVAS,
    VOCAB,
    WINDOW,
    published_weights,
    tiny_config,
    tiny_denoiser,
    tiny_stock,
)

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return tiny_config()


@pytest.fixture(scope="module")
def stock(config: dict[str, Any]) -> Any:
    return tiny_stock(config)


@pytest.fixture(scope="module")
def plain(config: dict[str, Any], stock: Any) -> PlainGemma:
    return PlainGemma(published_weights(stock), config)


@pytest.fixture(scope="module")
def denoiser(config: dict[str, Any], stock: Any) -> DiffusionGemmaDenoiser:
    return tiny_denoiser(config, published_weights(stock))


def tokens(count: int, seed: int) -> list[int]:
    """Random ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB, (count,), generator=generator).tolist()


def encode(denoiser: DiffusionGemmaDenoiser, context: list[int], past: Cache | None) -> Cache:
    """One row's cache of `past` and `context` after it."""
    cached = 0 if past is None else past[0].shape[4]
    ids, count = torch.tensor([context]), len(context)
    causal = torch.ones(count, cached + count).tril(cached).bool()[None]
    positions = torch.arange(cached, cached + count)[None]
    new = denoiser.encode(ids, positions, causal, past)
    return new if past is None else tuple(map(_join, past, new))


def _join(past: Tensor, new: Tensor) -> Tensor:
    return torch.cat([past, new], dim=4)


def denoise(
    denoiser: DiffusionGemmaDenoiser,
    past: Cache,
    canvas: list[int],
    conditioned_by: Tensor | None = None,
) -> Tensor:
    """One row's logits [canvas, vocabulary]."""
    start = past[0].shape[4]
    positions = torch.arange(start, start + len(canvas))[None]
    soft = None if conditioned_by is None else denoiser.soft(conditioned_by)[None]
    hidden, kv = denoiser.forward(
        torch.tensor([canvas]), positions, None, past, want_kv=False, soft_BLD=soft
    )
    assert kv is None
    return denoiser.logits(hidden[0])


@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW, 3 * WINDOW + 2])
def test_logits_equal_the_plain_implementation(
    denoiser: DiffusionGemmaDenoiser, plain: PlainGemma, length: int
) -> None:
    """With and without self-conditioning, for contexts shorter and longer than the window."""
    context, canvas = tokens(length, seed=1), tokens(CANVAS, seed=2)
    past = encode(denoiser, context, None)
    first = denoise(denoiser, past, canvas)
    torch.testing.assert_close(
        first.double(), plain.logits(context, canvas), atol=TOLERANCE, rtol=0
    )
    tempered = first / 0.8
    second = denoise(denoiser, past, canvas, tempered)
    expected = plain.logits(context, canvas, conditioned_by=tempered)
    torch.testing.assert_close(second.double(), expected, atol=TOLERANCE, rtol=0)
    assert (first - second).abs().max() > 1, "self-conditioning must count in this test"


@pytest.mark.parametrize("length", [WINDOW - 1, 3 * WINDOW + 2])
def test_logits_equal_the_stock_module(
    denoiser: DiffusionGemmaDenoiser, stock: Any, length: int
) -> None:
    context, canvas = tokens(length, seed=3), tokens(CANVAS, seed=4)
    before = torch.randn(CANVAS, VOCAB, generator=torch.Generator().manual_seed(5)) * 3
    expected = stock(
        input_ids=torch.tensor([context]),
        decoder_input_ids=torch.tensor([canvas]),
        self_conditioning_logits=before[None],
    ).logits[0]
    found = denoise(denoiser, encode(denoiser, context, None), canvas, before)
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)


def test_several_canvases_extend_the_cache(
    denoiser: DiffusionGemmaDenoiser, plain: PlainGemma
) -> None:
    """A prompt and two canvases encoded one after another are a context encoded at once."""
    parts = [tokens(5, seed=6), tokens(CANVAS, seed=7), tokens(CANVAS, seed=8)]
    past: Cache | None = None
    for part in parts:
        past = encode(denoiser, part, past)
    assert past is not None
    context, canvas = list(chain(*parts)), tokens(CANVAS, seed=9)
    at_once = encode(denoiser, context, None)
    for piecewise, whole in zip(past, at_once, strict=True):
        torch.testing.assert_close(piecewise, whole, atol=TOLERANCE, rtol=0)
    expected = plain.logits(context, canvas)
    torch.testing.assert_close(
        denoise(denoiser, past, canvas).double(), expected, atol=TOLERANCE, rtol=0
    )


@pytest.mark.parametrize("kinds", [("full_attention",) * 2, ("sliding_attention",) * 2])
def test_layers_may_be_of_one_kind(kinds: tuple[str, ...]) -> None:
    """The last layer attends in full, whatever the config says, and the cache has its groups."""
    config = tiny_config(kinds)
    stock = tiny_stock(config)
    denoiser = tiny_denoiser(config, published_weights(stock))
    context, canvas = tokens(2 * WINDOW, seed=10), tokens(CANVAS, seed=11)
    past = encode(denoiser, context, None)
    shapes = [(g.layers, 2, 1, g.heads, len(context), g.head_dim) for g in denoiser.spec.kv]
    assert [tuple(group.shape) for group in past] == shapes
    expected = stock(
        input_ids=torch.tensor([context]), decoder_input_ids=torch.tensor([canvas])
    ).logits[0]
    torch.testing.assert_close(denoise(denoiser, past, canvas), expected, atol=TOLERANCE, rtol=0)


def test_a_row_in_a_padded_batch_is_the_row_alone(denoiser: DiffusionGemmaDenoiser) -> None:
    """Contexts of unequal length, canvases of unequal length, a row of padding only."""
    lengths, widths = [3 * WINDOW, 2, 0, WINDOW + 1], [CANVAS, CANVAS, 0, CANVAS - 3]
    contexts = [tokens(n, seed=20 + n) for n in lengths]
    canvases = [tokens(n, seed=30 + i) for i, n in enumerate(widths)]
    befores = [torch.randn(n, VOCAB, generator=torch.Generator().manual_seed(n)) for n in widths]
    past, context_live = encode_batch(denoiser, contexts)
    ids, live = padded(canvases, CANVAS)
    start = torch.tensor(lengths)[:, None]
    positions = torch.where(live, start + torch.arange(CANVAS), 0)
    soft = torch.zeros(len(canvases), CANVAS, denoiser.spec.hidden_size)
    for row, before in enumerate(befores):
        soft[row, : len(before)] = denoiser.soft(before) if len(before) else 0
    keys = torch.cat([context_live, live], dim=1)
    hidden, _ = denoiser.forward(
        ids, positions, keys[:, None].expand(-1, CANVAS, -1), past, False, live, soft
    )
    assert not hidden[~live].any()
    for row, (context, canvas, before) in enumerate(zip(contexts, canvases, befores, strict=True)):
        if canvas:
            alone = denoise(denoiser, encode(denoiser, context, None), canvas, before)
            found = denoiser.logits(hidden[row, : len(canvas)])
            torch.testing.assert_close(found, alone, atol=TOLERANCE, rtol=0)


def padded(rows: list[list[int]], width: int) -> tuple[Tensor, Tensor]:
    """Ids, 0 where there are none, and which of them are live."""
    live = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    ids[live] = torch.tensor(list(chain(*rows)))
    return ids, live


def encode_batch(
    denoiser: DiffusionGemmaDenoiser, contexts: list[list[int]]
) -> tuple[Cache, Tensor]:
    """The rows' caches, padded, and which of their positions are live."""
    width = max(map(len, contexts))
    ids, live = padded(contexts, width)
    causal = torch.ones(width, width).tril().bool() & live[:, None]
    positions = torch.arange(width).expand_as(ids)
    return denoiser.encode(ids, positions, causal, None, live), live


def test_soft_embeddings_may_be_taken_in_parts(
    denoiser: DiffusionGemmaDenoiser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many positions fit into memory at once, each has its own."""
    logits = torch.randn(10, VOCAB, generator=torch.Generator().manual_seed(0))
    whole = denoiser.soft(logits)
    monkeypatch.setattr(diffusion_gemma, "SOFT_BYTES", 3 * 4 * VOCAB)
    torch.testing.assert_close(denoiser.soft(logits), whole)
    torch.testing.assert_close(denoiser.soft(logits[4:6]), whole[4:6])
    assert denoiser.soft(logits[:0]).shape == (0, denoiser.spec.hidden_size)


def test_logits_are_softly_capped(denoiser: DiffusionGemmaDenoiser) -> None:
    """No logit passes 30, however long the hidden state."""
    logits = denoiser.logits(torch.ones(1, denoiser.spec.hidden_size) * 1e4)
    assert logits.dtype == torch.float32
    assert logits.abs().max() <= 30


def test_the_decoder_gives_no_cache(denoiser: DiffusionGemmaDenoiser) -> None:
    """Its keys are not the encoder's, so they must not be kept."""
    past = encode(denoiser, tokens(3, seed=0), None)
    with pytest.raises(ValueError, match="want_kv"):
        denoiser.forward(torch.zeros(1, 1).long(), torch.tensor([[3]]), None, past, want_kv=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_fp32(config: dict[str, Any], stock: Any, dtype: Any) -> None:
    """Logits are fp32 all the same; hidden states, caches and soft embeddings are not."""
    weights = published_weights(stock)
    half = tiny_denoiser(config, {key: tensor.to(dtype) for key, tensor in weights.items()}, dtype)
    rounded = tiny_denoiser(config, {key: t.to(dtype).float() for key, t in weights.items()})
    context, canvas = tokens(2 * WINDOW, seed=12), tokens(CANVAS, seed=13)
    expected = denoise(rounded, encode(rounded, context, None), canvas)
    past = encode(half, context, None)
    found = denoise(half, past, canvas)
    assert (half.dtype, past[0].dtype, found.dtype) == (dtype, dtype, torch.float32)
    assert half.soft(found).dtype == dtype
    spread = expected.std()
    assert (found - expected).abs().mean() < 0.1 * spread
