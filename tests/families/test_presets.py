"""Presets: public shapes by name, each recognised as its family."""

from __future__ import annotations

import pytest

from raydiff.errors import ModelError
from raydiff.families import family_of, load_spec, model_path
from raydiff.families.presets import PREFIX, PRESETS, is_random, random_source
from raydiff.families.recognition import FAMILIES
from raydiff.families.tiny import VOCABULARY

FAMILY_OF = {
    "llada-8b": "llada",
    "llada-1.5": "llada",
    "dream-7b": "dream",
    "sdar-4b": "sdar",
    "sdar-30b-a3b": "sdar",
    "fast-dllm-v2-7b": "fast-dllm",
    "llada2-mini": "llada2",
    "llada2-flash": "llada2",
    "diffusiongemma-26b-a4b": "diffusion-gemma",
    "a2d-qwen3-0.6b-mdlm": "a2d",
    "bert-base": "bert",
    "roberta-base": "roberta",
    "modernbert-large": "modernbert",
    "diffuseq": "embedding",
    "tiny-summarizer": "summarizer",
}


@pytest.mark.parametrize("preset", FAMILY_OF)
def test_a_shape_belongs_to_its_family(preset: str) -> None:
    assert family_of(PRESETS[preset].config, preset).name == FAMILY_OF[preset]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_id_a_spec_names_is_in_its_vocabulary(preset: str) -> None:
    spec = load_spec(PREFIX + preset)
    named = {spec.pad_id, spec.mask_id, *spec.end_ids, *spec.forbidden_ids}
    named |= {*spec.prompt_prefix_ids, *spec.prompt_suffix_ids}
    assert named <= set(range(spec.vocab_size))
    assert spec.name == PREFIX + preset


def test_tiny_ones_are_tiny_and_there_is_one_of_each_family() -> None:
    tiny = {name: preset for name, preset in PRESETS.items() if name.startswith("tiny-")}
    assert {family_of(p.config, n).name for n, p in tiny.items()} == {f.name for f in FAMILIES}
    assert all(load_spec(PREFIX + name).vocab_size == VOCABULARY for name in tiny)


def test_a_block_model_of_a2d_differs_from_a_masked_one() -> None:
    attention = [load_spec(f"random:a2d-qwen3-0.6b-{kind}").attention for kind in ("mdlm", "bd3lm")]
    assert attention == ["full", "block-causal"]


def test_an_unknown_preset_lists_the_known() -> None:
    with pytest.raises(ModelError, match=r"llada-8b.*random:llada-9b"):
        random_source("random:llada-9b")


def test_random_weights_have_no_directory() -> None:
    assert is_random("random:llada-8b")
    assert not is_random("checkpoints/random")
    with pytest.raises(ModelError, match="random weights"):
        model_path("random:llada-8b")
