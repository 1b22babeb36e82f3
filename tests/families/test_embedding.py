"""Checkpoints of embedding diffusion are recognised by their config alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydiff.errors import DecodingError, ModelError
from raydiff.request import Decoding
from tests.families.published import read
from tests.models.tiny_embedding import CROSS, DIFFUSEQ_ARGS, OWN


def test_diffuseqs_published_arguments_say_noise_prediction_and_layout(tmp_path: Path) -> None:
    published = {
        key: value
        for key, value in DIFFUSEQ_ARGS.items()
        if key not in ("hidden_size", "num_hidden_layers", "num_attention_heads")
    } | {"hidden_t_dim": 128, "hidden_dim": 128, "seq_len": 128, "vocab_size": 30522}
    spec = read(tmp_path, published)
    assert (spec.family, spec.noise, spec.attention) == ("embedding", "gaussian", "full")
    assert (spec.prediction, spec.noise_schedule, spec.latent_size) == ("x0", "sqrt", 128)
    assert (spec.vocab_size, spec.hidden_size) == (30522, 768)
    assert spec.prompt_prefix_ids == (101,)
    assert spec.end_ids == (102,)
    assert spec.context_length == 128


def test_epsilon_prediction_is_read_from_the_arguments(tmp_path: Path) -> None:
    spec = read(tmp_path, {**DIFFUSEQ_ARGS, "vocab_size": 128, "predict_xstart": False})
    assert spec.prediction == "epsilon"


def test_our_own_config_says_everything(tmp_path: Path) -> None:
    config = {**OWN, **CROSS, "prediction": "velocity", "noise_schedule": "rectified"}
    spec = read(tmp_path, config | {"first_time": 0.9})
    assert (spec.prediction, spec.noise_schedule) == ("velocity", "rectified")
    assert (spec.first_time, spec.block_length, spec.max_new_tokens) == (0.9, 12, 12)


@pytest.mark.parametrize("setting", ["prediction", "noise_schedule"])
def test_an_unknown_value_is_refused_by_name(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ModelError, match=setting):
        read(tmp_path, {**OWN, setting: "nonsense"})


def test_noise_on_embeddings_takes_solvers_and_no_token_policy(tmp_path: Path) -> None:
    spec = read(tmp_path, OWN)
    assert spec.policies() == ("solver",)
    resolved = spec.resolve(Decoding(solver_order=3, solver="dpm++"))
    assert (resolved.policy, resolved.steps, resolved.rounding) == ("solver", 4, "euclidean")
    with pytest.raises(DecodingError, match="threshold"):
        spec.resolve(Decoding(threshold=0.9))
