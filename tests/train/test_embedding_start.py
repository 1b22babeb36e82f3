"""An untrained denoiser of embeddings already leans towards the prompt's words, in their order."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from raydiff.families import Source
from raydiff.families.embedding import FAMILY
from raydiff.models.embedding import EmbeddingDenoiser, build
from raydiff.spec import Prediction
from raydiff.train.embedding import normalised
from raydiff.train.embedding_start import copying_start
from tests.models.tiny_embedding import OWN

VOCAB, WIDTH, PROMPT, TARGET = 60, 16, 14, 10


def untrained(cross: bool, prediction: Prediction) -> EmbeddingDenoiser:
    config: dict[str, Any] = {
        **OWN,
        "vocab_size": VOCAB,
        "embedding_size": WIDTH,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "max_position_embeddings": PROMPT + TARGET,
        "cross_attention": cross,
        "encoder_layers": 1,
        "prompt_positions": True,
        "prediction": prediction,
        "noise_schedule": "rectified",
    }
    torch.manual_seed(0)
    model = build(config)
    copying_start(model, normalised(torch.randn(VOCAB, WIDTH)), PROMPT, prediction)
    return EmbeddingDenoiser(model, FAMILY.spec(Source(name="tiny", config=config)))


@pytest.mark.parametrize("cross", [False, True], ids=["diffuseq", "diffusion-lm"])
def test_it_predicts_the_prompts_word_at_the_same_offset(cross: bool) -> None:
    denoiser = untrained(cross, "x0")
    generator = torch.Generator().manual_seed(1)
    words = torch.randperm(VOCAB - 4, generator=generator)[: PROMPT - 2] + 4
    prompt = torch.cat([torch.tensor([1]), words, torch.tensor([2])])[None]
    seen = torch.ones_like(prompt, dtype=torch.bool)
    noise = torch.randn((64, TARGET, WIDTH), generator=generator)
    with torch.inference_mode():
        predicted = denoiser.predict(
            noise,
            torch.ones(64),
            torch.ones((64, TARGET), dtype=torch.bool),
            denoiser.encode_prompt(prompt, seen).expand(64, -1, -1),
            seen.expand(64, -1),
        ).mean(dim=0)
        scores = predicted @ denoiser.embed(words).T
    assert (scores.argmax(dim=1) == torch.arange(TARGET)).float().mean() > 0.7


@pytest.mark.parametrize("prediction", ["epsilon", "velocity"])
def test_predicted_noise_resembles_what_comes_in(prediction: Prediction) -> None:
    denoiser = untrained(True, prediction)
    noise = torch.randn((8, TARGET, WIDTH), generator=torch.Generator().manual_seed(1))
    prompt = torch.randint(4, VOCAB, (8, PROMPT))
    seen = torch.ones_like(prompt, dtype=torch.bool)
    with torch.inference_mode():
        predicted = denoiser.predict(
            noise,
            torch.ones(8),
            torch.ones((8, TARGET), dtype=torch.bool),
            denoiser.encode_prompt(prompt, seen),
            seen,
        )
    similarity = torch.nn.functional.cosine_similarity(predicted, noise, dim=2)
    assert similarity.mean() > 0.8
