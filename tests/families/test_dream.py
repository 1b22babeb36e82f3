"""Dream's published config means Qwen2's body, full attention and shifted logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raydiff.decoding import Decoding
from raydiff.errors import ModelError
from tests.families.published import SYSTEM, USER, read, render, stock

DREAM_7B: dict[str, Any] = {
    "architectures": ["DreamModel"],
    "model_type": "Dream",
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "mask_token_id": 151666,
    "max_position_embeddings": 131072,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "pad_token_id": 151643,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}


def test_the_7b_config_is_read_as_published(tmp_path: Path) -> None:
    spec = read(tmp_path, DREAM_7B)
    assert (spec.family, spec.attention, spec.shift) == ("dream", "full", True)
    assert (spec.mask_id, spec.pad_id, spec.end_ids) == (151666, 151643, (151643, 151645))
    (group,) = spec.kv
    assert (group.layers, group.heads, group.head_dim) == (28, 4, 128)


def test_the_context_is_the_documented_one(tmp_path: Path) -> None:
    spec = read(tmp_path, DREAM_7B)
    assert spec.context_length == 2048
    assert spec.max_prompt_tokens == 2048 - 512


def test_its_usual_decoding_ranks_by_entropy_on_its_own_timesteps(tmp_path: Path) -> None:
    resolved = read(tmp_path, DREAM_7B).resolve(Decoding())
    assert (resolved.policy, resolved.score, resolved.schedule) == ("quota", "entropy", "timestep")
    assert (resolved.max_tokens, resolved.steps, resolved.temperature) == (512, 512, 0.2)
    assert resolved.block_length == 512


def test_texts_to_be_continued_begin_with_the_tokenizers_begin_token(tmp_path: Path) -> None:
    assert read(tmp_path, DREAM_7B).prompt_prefix_ids == ()
    ids, roles = {"<|beginoftext|>": 151665}, {"bos_token": "<|beginoftext|>"}
    assert read(tmp_path, DREAM_7B, None, ids, roles).prompt_prefix_ids == (151665,)


def test_later_block_causal_models_of_its_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="known family"):
        read(tmp_path, {**DREAM_7B, "block_size": 32})


def test_a_sliding_window_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="use_sliding_window"):
        read(tmp_path, {**DREAM_7B, "use_sliding_window": True})


def test_a_rotation_that_depends_on_the_longest_row_is_refused(tmp_path: Path) -> None:
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    with pytest.raises(ModelError, match=r"rope_type.*dynamic"):
        read(tmp_path, {**DREAM_7B, "rope_scaling": scaling})


def test_an_older_name_of_the_rotation_is_understood() -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    body = stock({**DREAM_7B, "rope_scaling": scaling})
    assert body["model_type"] == "qwen2"
    assert body["rope_parameters"]["rope_type"] == "yarn"
    assert body["rope_parameters"]["rope_theta"] == 1000000.0


def test_chats_follow_the_published_format(tmp_path: Path) -> None:
    spec = read(tmp_path, DREAM_7B)
    turn = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    usual = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    assert render(spec, [USER]) == usual + turn
    assert render(spec, [SYSTEM, USER]) == "<|im_start|>system\nBe kind<|im_end|>\n" + turn
