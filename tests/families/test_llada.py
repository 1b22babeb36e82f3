"""LLaDA's published config means full attention, no shift, its own ids and format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raydiff.decoding import Decoding
from raydiff.errors import ModelError
from tests.families.published import ANSWER, USER, read, render, stock

LLADA_8B: dict[str, Any] = {
    "architectures": ["LLaDAModelLM"],
    "model_type": "llada",
    "activation_type": "silu",
    "alibi": False,
    "attention_layer_norm": False,
    "block_type": "llama",
    "d_model": 4096,
    "embedding_size": 126464,
    "eos_token_id": 126081,
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "mask_token_id": 126336,
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12288,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "pad_token_id": 126081,
    "rms_norm_eps": 1e-05,
    "rope": True,
    "rope_theta": 500000.0,
    "scale_logits": False,
    "vocab_size": 126464,
    "weight_tying": False,
}


def test_the_8b_config_is_read_as_published(tmp_path: Path) -> None:
    spec = read(tmp_path, LLADA_8B)
    assert (spec.family, spec.attention, spec.noise, spec.shift) == (
        "llada",
        "full",
        "absorbing",
        False,
    )
    assert (spec.mask_id, spec.pad_id) == (126336, 126081)
    assert spec.end_ids == (126081, 126348)
    assert (spec.vocab_size, spec.hidden_size, spec.context_length) == (126464, 4096, 4096)
    (group,) = spec.kv
    assert (group.layers, group.heads, group.head_dim) == (32, 32, 128)
    assert spec.cache == "none"


def test_its_usual_decoding_is_128_tokens_in_blocks_of_32(tmp_path: Path) -> None:
    resolved = read(tmp_path, LLADA_8B).resolve(Decoding())
    assert (resolved.policy, resolved.max_tokens, resolved.steps) == ("quota", 128, 32)
    assert (resolved.block_length, resolved.score, resolved.temperature) == (32, "confidence", 0)


def test_the_whole_text_may_be_one_block(tmp_path: Path) -> None:
    spec = read(tmp_path, LLADA_8B)
    assert spec.resolve(Decoding(max_tokens=1024, block_length=1024)).block_length == 1024


def test_ids_of_other_vocabularies_come_from_the_config(tmp_path: Path) -> None:
    ids = {"mask_token_id": 5, "eos_token_id": 2, "pad_token_id": 1}
    spec = read(tmp_path, {**LLADA_8B, **ids})
    assert (spec.mask_id, spec.end_ids, spec.pad_id) == (5, (2,), 1)


def test_the_end_of_a_turn_comes_from_the_tokenizer(tmp_path: Path) -> None:
    ids = {"mask_token_id": 5, "eos_token_id": 2, "pad_token_id": 1}
    spec = read(tmp_path, {**LLADA_8B, **ids}, added_tokens={"<|eot_id|>": 9})
    assert spec.end_ids == (2, 9)


def test_a_mask_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    small = {**LLADA_8B, "vocab_size": 100, "eos_token_id": 1, "pad_token_id": 1}
    with pytest.raises(ModelError, match=r"mask_token_id.*126336"):
        read(tmp_path, small)


@pytest.mark.parametrize(
    ("name", "value"), [("alibi", True), ("block_type", "sequential"), ("include_qkv_bias", True)]
)
def test_settings_that_would_compute_something_else_are_refused(
    tmp_path: Path, name: str, value: object
) -> None:
    with pytest.raises(ModelError, match=name):
        read(tmp_path, {**LLADA_8B, name: value})


def test_the_mixture_of_experts_of_the_same_type_is_no_llada(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="known family"):
        read(tmp_path, {"model_type": "llada", "hidden_size": 2048, "num_experts": 64})


def test_its_body_is_llamas() -> None:
    body = stock(LLADA_8B)
    assert body["model_type"] == "llama"
    assert body["rope_parameters"] == {"rope_type": "default", "rope_theta": 500000.0}
    assert (body["intermediate_size"], body["tie_word_embeddings"]) == (12288, False)


def test_chats_follow_the_published_format(tmp_path: Path) -> None:
    assert render(read(tmp_path, LLADA_8B), [USER, ANSWER, USER]) == (
        "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
