"""A2D's published configs mean the body they were turned from, with full or block attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raydiff.decoding import Decoding
from raydiff.errors import ModelError
from tests.families.published import USER, read, render, stock

QWEN3_06B: dict[str, Any] = {
    "architectures": ["A2DQwen3LMHeadModel"],
    "model_type": "a2d-qwen3",
    "attention_bias": False,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def test_an_mdlm_checkpoint_attends_everywhere(tmp_path: Path) -> None:
    spec = read(tmp_path, QWEN3_06B)
    assert (spec.family, spec.attention, spec.shift) == ("a2d", "full", False)
    assert spec.mask_id == 151669
    assert set(spec.end_ids) == {151645, 151643}
    resolved = spec.resolve(Decoding())
    assert (resolved.policy, resolved.steps, resolved.block_length) == ("quota", 32, 32)
    assert resolved.max_tokens == 128


def test_a_bd3lm_checkpoint_is_block_causal_where_its_config_gives_blocks(tmp_path: Path) -> None:
    spec = read(tmp_path, {**QWEN3_06B, "block_size": 32})
    assert (spec.attention, spec.block_length) == ("block-causal", 32)


def test_the_mask_comes_from_the_tokenizer_first(tmp_path: Path) -> None:
    assert read(tmp_path, QWEN3_06B, added_tokens={"<|mask|>": 151700}).mask_id == 151700


@pytest.mark.parametrize(("body", "mask"), [("qwen3", 151669), ("qwen2", 151665)])
def test_each_body_has_its_own_mask(tmp_path: Path, body: str, mask: int) -> None:
    config = {**QWEN3_06B, "model_type": f"a2d-{body}"}
    assert read(tmp_path, config).mask_id == mask
    assert stock(config)["model_type"] == body


def test_a_llama_body_must_name_its_mask(tmp_path: Path) -> None:
    config = {**QWEN3_06B, "model_type": "a2d-llama"}
    with pytest.raises(ModelError, match="mask_token_id"):
        read(tmp_path, config)
    assert read(tmp_path, config, added_tokens={"<|mask|>": 11}).mask_id == 11


def test_other_bodies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="known family"):
        read(tmp_path, {**QWEN3_06B, "model_type": "a2d-gpt2"})


def test_answers_begin_after_an_empty_thought(tmp_path: Path) -> None:
    assert render(read(tmp_path, QWEN3_06B), [USER]).endswith(
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
