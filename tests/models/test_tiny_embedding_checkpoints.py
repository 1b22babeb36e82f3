"""The bundled denoisers of embeddings are small, load by name, and have learnt something."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.families import BUNDLED
from raydiff.models.embedding import EmbeddingDenoiser
from raydiff.models.loading import load_denoiser
from raydiff.request import Decoding
from raydiff.text import Tokenizer
from raydiff.train.batches import TokenisedPairs
from raydiff.train.embedding_evaluate import recovery

NAMES = {"tiny-diffuseq": "x0", "tiny-diffusion-lm": "epsilon", "tiny-flow": "velocity"}
PAIRS = (
    (
        "a small command line tool that converts images between many file formats.",
        "image format converter",
    ),
    (
        "this package contains the header files and static libraries for development.",
        "development files for the library",
    ),
    (
        "a python module that reads and writes audio files with a simple interface.",
        "python module for audio files",
    ),
)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    made: str = request.param
    return made


def loaded(name: str) -> EmbeddingDenoiser:
    denoiser = load_denoiser(name, device="cpu", dtype="fp32")
    assert isinstance(denoiser, EmbeddingDenoiser)
    return denoiser


def test_its_files_take_at_most_4_mb(name: str) -> None:
    assert sum(file.stat().st_size for file in BUNDLED[name].iterdir()) <= 4_000_000


def test_it_predicts_what_its_name_says(name: str) -> None:
    assert loaded(name).spec.prediction == NAMES[name]


def test_it_recovers_noised_words_better_than_chance(name: str) -> None:
    """Half of them from little noise; the nearest embedding of the noised one itself is no help
    to a network with random weights."""
    tokenizer = Tokenizer.load(name)
    ids = tokenizer.encode_batch([text for pair in PAIRS for text in pair])
    rows = [np.array(row, dtype=np.int64) for row in ids]
    pairs = TokenisedPairs(documents=rows[::2], summaries=rows[1::2], groups=np.arange(len(PAIRS)))
    trained = loaded(name)
    assert recovery(trained, pairs, 0.25) > 0.5
    with torch.no_grad():
        for layer in trained.model.output_down_proj:
            if isinstance(layer, torch.nn.Linear):
                layer.weight.normal_(generator=torch.Generator().manual_seed(0))
    assert recovery(trained, pairs, 0.25) < 0.2


@pytest.mark.parametrize("solver", ["ddpm", "ddim", "dpm++", "plms", "euler", "heun"])
def test_every_solver_writes_with_it(name: str, solver: str) -> None:
    engine = Engine.load(name, dtype="fp32", settings=EngineSettings(threads=1))
    decoding = Decoding(solver=solver, steps=4, seed=0)
    one, same = (engine.generate([PAIRS[0][0]], decoding)[0] for _ in range(2))
    assert one.token_ids == same.token_ids
    assert one.usage.forwards == (7 if solver == "heun" else 4)
