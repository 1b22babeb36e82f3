"""The `raydiff` section of our own small models: noise, attention, and where the text stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raydiff.errors import ModelError
from raydiff.families import load_spec
from raydiff.train.small import section_of


def saved(folder: Path, **changes: Any) -> Path:
    section = {**section_of("masked", 12, 8), **changes}
    config = {
        "model_type": "bert",
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "pad_token_id": 0,
        "raydiff": {name: value for name, value in section.items() if value != "absent"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_noise_and_attention_are_the_summarisers_where_nothing_is_said(tmp_path: Path) -> None:
    spec = load_spec(saved(tmp_path, noise="absent", attention="absent"))
    assert (spec.noise, spec.attention, spec.cache) == ("absorbing", "encoder-block", "exact")


def test_a_text_may_follow_its_prompt(tmp_path: Path) -> None:
    assert load_spec(saved(tmp_path, target_position=None)).target_position is None
    assert load_spec(saved(tmp_path, target_position=12)).target_position == 12


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
@pytest.mark.parametrize("attention", ["full", "encoder-block"])
def test_every_noise_goes_with_every_attention(tmp_path: Path, noise: str, attention: str) -> None:
    spec = load_spec(saved(tmp_path, noise=noise, attention=attention, defaults={}))
    assert (spec.noise, spec.attention) == (noise, attention)


@pytest.mark.parametrize("change", [{"noise": "gaussian"}, {"attention": "causal"}])
def test_an_unknown_noise_or_attention_is_refused_by_name(
    tmp_path: Path, change: dict[str, str]
) -> None:
    (name,) = change
    with pytest.raises(ModelError, match=rf"raydiff\.{name}: expected"):
        load_spec(saved(tmp_path, **change))
