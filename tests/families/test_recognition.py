"""What is read of a checkpoint before its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raydiff.errors import ModelError
from raydiff.families import family_of, load_source, load_spec


def write(folder: Path, **files: dict[str, Any]) -> Path:
    """JSON files by their names without the ending."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_special_ids_come_from_the_tokenizers_settings(tmp_path: Path) -> None:
    listed = {"7": {"content": "[MASK]"}}
    whole = {"added_tokens": [{"id": 9, "content": "[MASK]"}]}
    folder = write(
        tmp_path,
        config={},
        tokenizer_config={"added_tokens_decoder": listed},
        tokenizer=whole,
        added_tokens={"<x>": 3},
    )
    assert load_source(folder).special_ids == {"[MASK]": 7, "<x>": 3}


def test_special_ids_come_from_the_tokenizer_where_its_settings_list_none(tmp_path: Path) -> None:
    whole = {"added_tokens": [{"id": 9, "content": "[MASK]"}]}
    folder = write(tmp_path, config={}, tokenizer_config={"mask_token": "[MASK]"}, tokenizer=whole)
    assert load_source(folder).special_ids == {"[MASK]": 9}


def test_special_tokens_are_known_by_their_roles(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        config={},
        special_tokens_map={"mask_token": {"content": "<old>"}, "pad_token": "[PAD]"},
        tokenizer_config={
            "mask_token": {"content": "<m>"},
            "model_max_length": 8,
            "eos_token": None,
        },
    )
    tokens = load_source(folder).special_tokens
    assert tokens == {"mask_token": "<m>", "pad_token": "[PAD]"}


def test_a_model_of_no_family_is_refused_with_the_families_listed() -> None:
    with pytest.raises(ModelError, match=r"summarizer.*gpt2"):
        family_of({"model_type": "gpt2"}, "x/config.json")


def test_a_config_that_lacks_something_names_it(tmp_path: Path) -> None:
    folder = write(tmp_path, config={"model_type": "bert", "raydiff": {}})
    with pytest.raises(ModelError, match=r"summarizer.*num_attention_heads"):
        load_spec(folder)
