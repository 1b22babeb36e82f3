"""LLaDA2's published config means GLM-4's experts, in causal blocks of 32, without shift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raydiff.decoding import Decoding
from raydiff.errors import ModelError
from tests.families.published import SYSTEM, USER, read, render, stock

LLADA2_MINI: dict[str, Any] = {
    "architectures": ["LLaDA2MoeModelLM"],
    "model_type": "llada2_moe",
    "first_k_dense_replace": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "max_position_embeddings": 32768,
    "moe_intermediate_size": 512,
    "n_group": 8,
    "num_attention_heads": 16,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 20,
    "num_key_value_heads": 4,
    "num_shared_experts": 1,
    "pad_token_id": 156892,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 600000,
    "routed_scaling_factor": 2.5,
    "tie_word_embeddings": False,
    "topk_group": 4,
    "use_bias": False,
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "use_sliding_window": False,
    "vocab_size": 157184,
}


def test_the_mini_config_is_read_as_published(tmp_path: Path) -> None:
    spec = read(tmp_path, LLADA2_MINI)
    assert (spec.family, spec.attention, spec.shift) == ("llada2", "block-causal", False)
    assert (spec.block_length, spec.mask_id, spec.pad_id) == (32, 156895, 156892)
    assert spec.end_ids == (156892,)
    (group,) = spec.kv
    assert (group.layers, group.heads, group.head_dim) == (20, 4, 128)


def test_the_end_of_a_turn_comes_from_the_tokenizer(tmp_path: Path) -> None:
    spec = read(tmp_path, LLADA2_MINI, added_tokens={"<|role_end|>": 156900})
    assert spec.end_ids == (156892, 156900)


def test_version_2_0_commits_by_threshold(tmp_path: Path) -> None:
    resolved = read(tmp_path, LLADA2_MINI).resolve(Decoding())
    assert (resolved.policy, resolved.threshold, resolved.max_tokens) == ("threshold", 0.95, 2048)


@pytest.mark.parametrize("said", [{"model_type": "llada21_moe"}, {"editing_threshold": 0.9}])
def test_version_2_1_edits_where_the_checkpoint_says_so(
    tmp_path: Path, said: dict[str, object]
) -> None:
    resolved = read(tmp_path, {**LLADA2_MINI, **said}).resolve(Decoding())
    assert (resolved.policy, resolved.threshold, resolved.edit_threshold) == ("edit", 0.95, 0.9)
    assert resolved.max_edits == 16


def test_any_checkpoint_may_be_asked_to_edit(tmp_path: Path) -> None:
    resolved = read(tmp_path, LLADA2_MINI).resolve(Decoding(policy="edit"))
    assert (resolved.policy, resolved.edit_threshold) == ("edit", 0.9)


def test_biases_that_its_class_has_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="use_qkv_bias"):
        read(tmp_path, {**LLADA2_MINI, "use_qkv_bias": True})


def test_its_body_is_glms() -> None:
    body = stock(LLADA2_MINI)
    assert body["model_type"] == "glm4_moe"
    assert (body["n_routed_experts"], body["n_shared_experts"]) == (256, 1)
    assert body["rope_parameters"]["partial_rotary_factor"] == 0.5
    assert body["norm_topk_prob"] is True


def test_chats_follow_the_published_format(tmp_path: Path) -> None:
    spec = read(tmp_path, LLADA2_MINI)
    turn = "<role>HUMAN</role>Hi<|role_end|><role>ASSISTANT</role>"
    thinking = "detailed thinking off<|role_end|>"
    assert render(spec, [USER]) == f"<role>SYSTEM</role>{thinking}{turn}"
    assert render(spec, [SYSTEM, USER]) == f"<role>SYSTEM</role>Be kind\n{thinking}{turn}"
