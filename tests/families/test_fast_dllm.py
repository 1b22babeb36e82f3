"""Fast-dLLM v2's published config means Qwen2.5's body, shifted, in blocks of 32 by parts of 8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raydiff.decoding import Decoding
from tests.families.published import read, stock

FAST_DLLM_7B: dict[str, Any] = {
    "architectures": ["Fast_dLLM_QwenForCausalLM"],
    "model_type": "Fast_dLLM_Qwen",
    "bd_size": 32,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}


def test_the_7b_config_is_read_as_published(tmp_path: Path) -> None:
    spec = read(tmp_path, FAST_DLLM_7B)
    assert (spec.family, spec.attention) == ("fast-dllm", "block-causal")
    assert (spec.shift, spec.commit_first) == (True, True)
    assert (spec.block_length, spec.mask_id, spec.end_ids) == (32, 151665, (151645,))
    assert stock(FAST_DLLM_7B)["model_type"] == "qwen2"


def test_blocks_fill_part_by_part(tmp_path: Path) -> None:
    resolved = read(tmp_path, FAST_DLLM_7B).resolve(Decoding())
    assert (resolved.policy, resolved.threshold, resolved.block_length) == ("threshold", 0.9, 8)


def test_all_ends_of_the_generation_config_count(tmp_path: Path) -> None:
    spec = read(tmp_path, FAST_DLLM_7B, {"eos_token_id": [151645, 151643]})
    assert spec.end_ids == (151645, 151643)
