"""Model specs: reading them, and resolving decoding parameters against them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raydiff.errors import DecodingError, ModelError
from raydiff.families import load_spec, model_path
from raydiff.models.loading import random_denoiser
from raydiff.request import Decoding
from raydiff.spec import ModelSpec


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return random_denoiser().spec  # blocks of 16, at most 64 tokens


def test_absent_values_come_from_the_model(spec: ModelSpec) -> None:
    resolved = spec.resolve(Decoding())
    assert (resolved.policy, resolved.steps, resolved.block_length) == ("quota", 16, 16)
    assert (resolved.temperature, resolved.cache, resolved.threshold) == (0.0, "auto", None)


def test_a_threshold_alone_implies_its_policy(spec: ModelSpec) -> None:
    resolved = spec.resolve(Decoding(threshold=0.5))
    assert (resolved.policy, resolved.steps) == ("threshold", None)


def test_resolving_twice_changes_nothing(spec: ModelSpec) -> None:
    for decoding in (Decoding(), Decoding(threshold=0.5), Decoding(block_length=8)):
        once = spec.resolve(decoding)
        assert spec.resolve(once) == once


def test_default_steps_fit_a_shorter_block(spec: ModelSpec) -> None:
    assert spec.resolve(Decoding(block_length=4)).steps == 4


@pytest.mark.parametrize(
    ("decoding", "param"),
    [
        (Decoding(max_tokens=65), "max_tokens"),
        (Decoding(block_length=17), "block_length"),
        (Decoding(steps=17), "steps"),
        (Decoding(block_length=4, steps=5), "steps"),
    ],
)
def test_what_the_model_cannot_do_is_refused_by_name(
    spec: ModelSpec, decoding: Decoding, param: str
) -> None:
    with pytest.raises(DecodingError, match=param) as caught:
        spec.resolve(decoding)
    assert caught.value.param == param


def test_an_unknown_model_names_what_there_is() -> None:
    with pytest.raises(ModelError, match="summarizer"):
        model_path("no-such-model")


@pytest.mark.parametrize("text", ["not json", "[]", json.dumps({"model_type": "gpt2"})])
def test_an_unusable_config_is_a_model_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json"):
        load_spec(tmp_path)


def test_a_config_without_its_facts_says_which_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "bert",
                "vocab_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "hidden_size": 8,
                "pad_token_id": 0,
                "raydiff": {},
            }
        )
    )
    with pytest.raises(ModelError, match="mask_id"):
        load_spec(tmp_path)
