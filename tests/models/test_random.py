"""Models of random weights: any public shape, before a download."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.errors import ModelError
from raydiff.families.presets import PREFIX, PRESETS
from raydiff.models.loading import load_denoiser
from raydiff.request import Decoding

TINY = [PREFIX + name for name in PRESETS if name.startswith("tiny-")]


def module(name: str) -> nn.Module:
    loaded: nn.Module = load_denoiser(name, "cpu", "fp32").module
    return loaded


def test_weights_repeat() -> None:
    first, again = module("random:tiny-sdar").state_dict(), module("random:tiny-sdar").state_dict()
    assert all(torch.equal(value, again[key]) for key, value in first.items())


def test_matrices_are_normal_about_zero_norms_one_and_biases_zero() -> None:
    state = module("random:tiny-dream").state_dict()
    embeddings = state["model.embed_tokens.weight"]
    assert embeddings.std().item() == pytest.approx(0.02, rel=0.05)
    assert abs(embeddings.mean().item()) < 1e-3
    assert torch.equal(state["model.norm.weight"], torch.ones(64))
    assert torch.equal(state["model.layers.0.self_attn.q_proj.bias"], torch.zeros(64))


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"tiny-sdar.*random:no-such"):
        load_denoiser("random:no-such")


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
@pytest.mark.parametrize("name", TINY)
def test_every_tiny_preset_generates(name: str, dtype: str) -> None:
    settings = EngineSettings(threads=1, max_rows=4)
    engine = Engine.load(name, device="cpu", dtype=dtype, settings=settings)
    steps = 4 if engine.spec.noise == "gaussian" else None
    length = min(16, engine.spec.max_new_tokens)
    decoding = Decoding(max_tokens=length, ignore_eos=True, seed=1, steps=steps)
    one, two = engine.generate(["a text", "another, longer one"], decoding)
    assert one.usage.completion_tokens == two.usage.completion_tokens == length
    assert isinstance(one.text, str)
