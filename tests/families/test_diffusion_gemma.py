"""DiffusionGemma: what is read of its config, and its published keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from raydiff.decoding import Decoding
from raydiff.errors import DecodingError, ModelError
from raydiff.families import load_spec
from raydiff.families.diffusion_gemma import FAMILY
from raydiff.families.family import Source
from raydiff.models.loading import load_denoiser
from raydiff.spec import KVGroup, ModelSpec
from tests.models.tiny_gemma import END_IDS, published_weights, tiny_config, tiny_stock

GENERATION = {
    "confidence_threshold": 0.005,
    "eos_token_id": [1, 106, 50],
    "max_denoising_steps": 48,
    "max_new_tokens": 256,
    "pad_token_id": 0,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
    "stability_threshold": 1,
    "t_max": 0.8,
    "t_min": 0.4,
}
"""Of the public 26B-A4B model, and so are these shapes."""
PUBLIC: dict[str, Any] = {
    "model_type": "diffusion_gemma",
    "canvas_length": 256,
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "diffusion_gemma_text",
        "vocab_size": 262144,
        "hidden_size": 2816,
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 2,
        "head_dim": 256,
        "global_head_dim": 512,
        "max_position_embeddings": 262144,
        "bos_token_id": 2,
    },
}


def read(config: dict[str, Any], generation: dict[str, Any] | None = None) -> ModelSpec:
    return FAMILY.spec(Source(name="x", config=config, generation=generation or {}))


def changed(text: dict[str, Any]) -> dict[str, Any]:
    """The public config with other settings of its text part."""
    return {**PUBLIC, "text_config": {**PUBLIC["text_config"], **text}}


def test_the_public_config_is_understood() -> None:
    spec = read(PUBLIC, GENERATION)
    assert FAMILY.recognises(PUBLIC)
    assert (spec.attention, spec.noise, spec.cache) == ("causal-encoder", "uniform", "exact")
    assert spec.self_conditioning
    assert spec.kv == (
        KVGroup(layers=25, heads=8, head_dim=256),
        KVGroup(layers=5, heads=2, head_dim=512),
    )
    assert spec.end_ids == (1, 106, 50)
    assert (spec.block_length, spec.context_length) == (256, 262144)
    assert spec.prompt_prefix_ids == (2,)
    assert spec.forbidden_ids == (), "its decoder predicts padding too"


def test_its_own_decoding_is_the_default() -> None:
    """Also where the checkpoint has no `generation_config.json`."""
    for generation in (GENERATION, {}):
        decoding = read(PUBLIC, generation).resolve(Decoding())
        assert decoding.policy == "entropy_bound"
        assert (decoding.steps, decoding.block_length, decoding.max_tokens) == (48, 256, 256)
        assert (decoding.entropy_bound, decoding.stop_entropy) == (0.1, 0.005)


def test_the_checkpoint_may_set_other_decoding() -> None:
    generation = {
        **GENERATION,
        "max_denoising_steps": 32,
        "t_max": 0.9,
        "t_min": 0.3,
        "confidence_threshold": 0.01,
        "sampler_config": {"entropy_bound": 0.2},
    }
    spec = read(PUBLIC, generation)
    decoding = spec.resolve(Decoding())
    assert (decoding.steps, decoding.entropy_bound, decoding.stop_entropy) == (32, 0.2, 0.01)
    assert spec.temperature_at(decoding, 0) == pytest.approx(0.9)
    assert spec.temperature_at(decoding, 16) == pytest.approx(0.6)


def test_the_temperature_falls_unless_the_request_gives_one() -> None:
    """0.8 at the first of 48 steps, by equal steps, 0.4 one step after the last."""
    spec = read(PUBLIC, GENERATION)
    usual = spec.resolve(Decoding())
    temperatures = [spec.temperature_at(usual, step) for step in range(49)]
    assert temperatures[0] == pytest.approx(0.8)
    assert temperatures[12] == pytest.approx(0.7)
    assert temperatures[48] == pytest.approx(0.4)
    fixed = spec.resolve(Decoding(temperature=0.0))
    assert {spec.temperature_at(fixed, step) for step in range(48)} == {0.0}


def test_absorbing_policies_are_refused_by_name() -> None:
    with pytest.raises(DecodingError, match="policy"):
        read(PUBLIC).resolve(Decoding(policy="quota"))


def test_shapes_written_layer_by_layer_are_read_too() -> None:
    """As transformers 5.24 saves them."""
    per_layer = {str(i): {"head_dim": 512, "num_key_value_heads": 2} for i in range(5, 30, 6)}
    text = {"per_layer_config": per_layer, "global_head_dim": None}
    assert read(changed(text)).kv == read(PUBLIC).kv


@pytest.mark.parametrize(
    ("config", "generation", "named"),
    [
        (changed({"use_bidirectional_attention": "all"}), {}, "use_bidirectional_attention"),
        ({**PUBLIC, "tie_word_embeddings": False}, {}, "tie_word_embeddings"),
        (PUBLIC, {"stability_threshold": 2}, "stability_threshold"),
    ],
)
def test_what_would_run_wrongly_is_refused(
    config: dict[str, Any], generation: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        read(config, generation)


Weights = dict[str, Tensor]


@pytest.fixture(scope="module")
def weights() -> Weights:
    return published_weights(tiny_stock(tiny_config()))


def write(folder: Path, weights: Weights) -> Path:
    """A checkpoint directory with the published names."""
    (folder / "config.json").write_text(json.dumps(tiny_config()))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END_IDS}))
    save_file(weights, folder / "model.safetensors")
    return folder


def logits(folder: Path) -> Tensor:
    """Of one canvas after three tokens."""
    denoiser = load_denoiser(folder, device="cpu", dtype="fp32")
    causal = torch.ones(1, 3, 3).tril().bool()
    past = denoiser.encode(torch.tensor([[5, 6, 7]]), torch.arange(3)[None], causal, None)
    canvas = torch.arange(10, 18)[None]
    hidden, _ = denoiser.forward(canvas, torch.arange(3, 11)[None], None, past, want_kv=False)
    return denoiser.logits(hidden[0])


def test_a_published_checkpoint_loads(tmp_path: Path, weights: Weights) -> None:
    """Its vision weights are there and left out; the logits are the stock module's."""
    assert any("vision_tower" in key for key in weights)
    folder = write(tmp_path, weights)
    assert load_spec(folder).end_ids == tuple(END_IDS)
    stock = tiny_stock(tiny_config())
    expected = stock(
        input_ids=torch.tensor([[5, 6, 7]]), decoder_input_ids=torch.arange(10, 18)[None]
    ).logits[0]
    torch.testing.assert_close(logits(folder), expected, atol=1e-4, rtol=0)


def test_copies_of_tied_weights_are_ignored(tmp_path: Path, weights: Weights) -> None:
    """A checkpoint that also holds the encoder's copies and the head loads alike."""
    alone, both = tmp_path / "alone", tmp_path / "both"
    alone.mkdir()
    both.mkdir()
    copies = {
        "lm_head.weight": weights["model.decoder.embed_tokens.weight"].clone(),
        "model.encoder.language_model.norm.weight": weights["model.decoder.norm.weight"].clone(),
        "model.encoder.language_model.layers.0.mlp.up_proj.weight": weights[
            "model.decoder.layers.0.mlp.up_proj.weight"
        ].clone(),
    }
    torch.testing.assert_close(
        logits(write(both, {**weights, **copies})), logits(write(alone, weights))
    )


@pytest.mark.parametrize(
    "key",
    [
        "model.decoder.layers.5.experts.down_proj",
        "model.decoder.layers.2.layer_scalar",
        "model.encoder.language_model.layers.3.layer_scalar",
        "model.decoder.self_conditioning.pre_norm.weight",
    ],
)
def test_a_missing_tensor_is_named(tmp_path: Path, weights: Weights, key: str) -> None:
    rest = {name: tensor for name, tensor in weights.items() if name != key}
    with pytest.raises(ModelError, match=key.replace(".", r"\.")):
        load_denoiser(write(tmp_path, rest), device="cpu")


def test_a_tensor_of_no_place_or_another_shape_is_named(tmp_path: Path, weights: Weights) -> None:
    """A value projection in a layer of full attention has no place."""
    surplus = "model.decoder.layers.5.self_attn.v_proj.weight"
    wrong = "model.decoder.layers.0.router.proj.weight"
    bad = {**weights, surplus: torch.zeros(4, 32), wrong: torch.zeros(3, 32)}
    with pytest.raises(ModelError) as caught:
        load_denoiser(write(tmp_path, bad), device="cpu")
    assert surplus in str(caught.value)
    assert wrong in str(caught.value)
