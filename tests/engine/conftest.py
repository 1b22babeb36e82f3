"""A tiny random model in fp32 and a tokenizer of one token a character."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tokenizers

from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.metrics import Recorder
from raydiff.models.denoiser import Denoiser
from raydiff.models.loading import random_denoiser
from raydiff.request import RequestStats, StepStats
from raydiff.spec import ModelSpec
from raydiff.text import Tokenizer

SPECIALS = ["<pad>", "<begin>", "<end>", "<mask>"]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,<>123"


def character_tokenizer(spec: ModelSpec) -> Tokenizer:
    """Ids 0-3 are special, then one id a character."""
    vocab = {piece: i for i, piece in enumerate([*SPECIALS, *LETTERS])}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    backend.add_special_tokens(SPECIALS)
    backend.decoder = tokenizers.decoders.Fuse()
    return Tokenizer(backend, spec)


class ListRecorder:
    """Keeps every record."""

    def __init__(self) -> None:
        self.steps: list[StepStats] = []
        self.requests: list[RequestStats] = []

    def on_step(self, stats: StepStats) -> None:
        self.steps.append(stats)

    def on_request(self, stats: RequestStats) -> None:
        self.requests.append(stats)


MakeEngine = Callable[..., Engine]


@pytest.fixture(scope="session")
def denoiser() -> Denoiser:
    return random_denoiser(seed=3)


@pytest.fixture
def make_engine(denoiser: Denoiser) -> MakeEngine:
    """Engines over the same tiny model."""

    def make(recorder: Recorder | None = None, **settings: int) -> Engine:
        tokenizer = character_tokenizer(denoiser.spec)
        return Engine(denoiser, tokenizer, EngineSettings(**settings), recorder)

    return make


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine()
