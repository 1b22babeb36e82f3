"""SDAR's published config means Qwen3's body in small causal blocks, without shift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raydiff.decoding import Decoding
from raydiff.errors import DecodingError
from tests.families.published import USER, read, render, stock

SDAR_4B: dict[str, Any] = {
    "architectures": ["SDARForCausalLM"],
    "model_type": "sdar",
    "attention_bias": False,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "block_size": 4,
    "mask_token_id": 151669,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
GENERATION = {"eos_token_id": [151645, 151643], "pad_token_id": 151643, "temperature": 0.6}


def test_the_4b_config_is_read_as_published(tmp_path: Path) -> None:
    spec = read(tmp_path, SDAR_4B, GENERATION)
    assert (spec.family, spec.attention, spec.shift) == ("sdar", "block-causal", False)
    assert (spec.block_length, spec.mask_id, spec.pad_id) == (4, 151669, 151643)
    assert set(spec.end_ids) == {151643, 151645}
    (group,) = spec.kv
    assert (group.layers, group.heads, group.head_dim) == (36, 8, 128)
    assert spec.cache == "exact"


def test_its_usual_decoding_is_dynamic(tmp_path: Path) -> None:
    resolved = read(tmp_path, SDAR_4B, GENERATION).resolve(Decoding())
    assert (resolved.policy, resolved.threshold, resolved.block_length) == ("threshold", 0.85, 4)
    assert resolved.temperature == 0


def test_variants_of_larger_blocks_say_so(tmp_path: Path) -> None:
    assert read(tmp_path, {**SDAR_4B, "block_size": 32}).block_length == 32


def test_blocks_are_of_four_where_nothing_says(tmp_path: Path) -> None:
    silent = {key: value for key, value in SDAR_4B.items() if key != "block_size"}
    assert read(tmp_path, silent).block_length == 4


def test_a_request_may_not_choose_another_attention(tmp_path: Path) -> None:
    with pytest.raises(DecodingError, match="block_length"):
        read(tmp_path, SDAR_4B).resolve(Decoding(block_length=8))


def test_the_mask_is_found_by_name_where_the_config_is_silent(tmp_path: Path) -> None:
    silent = {key: value for key, value in SDAR_4B.items() if key != "mask_token_id"}
    assert read(tmp_path, silent, added_tokens={"<MASK>": 7}).mask_id == 7
    (tmp_path / "added_tokens.json").unlink()
    assert read(tmp_path, silent).mask_id == 151669


def test_dense_and_routed_bodies_are_qwen3s() -> None:
    assert stock(SDAR_4B)["model_type"] == "qwen3"
    experts = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
    routed = stock({**SDAR_4B, **experts, "norm_topk_prob": True, "model_type": "sdar_moe"})
    assert (routed["model_type"], routed["num_experts"]) == ("qwen3_moe", 128)
    assert routed["norm_topk_prob"] is True


def test_chats_have_no_system_message_of_their_own(tmp_path: Path) -> None:
    spec = read(tmp_path, SDAR_4B)
    assert render(spec, [USER]) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
