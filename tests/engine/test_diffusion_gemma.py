"""DiffusionGemma through the engine: token for token what transformers generates for one row with
the same draws, and what no batch changes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tokenizers
import torch

from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.models.diffusion_gemma import DiffusionGemmaDenoiser
from raydiff.request import Completion, Decoding
from raydiff.text import Tokenizer
from tests.engine.stock_gemma import stock_generate
from tests.models.tiny_gemma import (
    CANVAS,
    END_IDS,
    VOCAB,
    published_weights,
    tiny_config,
    tiny_denoiser,
    tiny_stock,
)

STEPS = 6
LONG = 5 * CANVAS - 3


MODELS = {"restless": {"sure": 1.0}, "calm": {"sure": 1.0, "calm": 0.3}}
"""A model whose predictions change at every step, and one whose canvases become stable."""


@pytest.fixture(scope="module")
def stocks() -> dict[str, Any]:
    return {name: tiny_stock(tiny_config(), **how) for name, how in MODELS.items()}


@pytest.fixture(scope="module")
def denoisers(stocks: dict[str, Any]) -> dict[str, DiffusionGemmaDenoiser]:
    made = {}
    for name, stock in stocks.items():
        made[name] = tiny_denoiser(tiny_config(), published_weights(stock))
        made[name].spec = replace(made[name].spec, end_ids=tuple(END_IDS))
    return made


def engine_of(denoiser: DiffusionGemmaDenoiser, **settings: int) -> Engine:
    return Engine(denoiser, letter_tokenizer(denoiser), EngineSettings(**settings))


def letter_tokenizer(denoiser: DiffusionGemmaDenoiser) -> Tokenizer:
    """One letter an id."""
    vocab = {chr(0x100 + i): i for i in range(VOCAB)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    backend.decoder = tokenizers.decoders.Fuse()
    return Tokenizer(backend, denoiser.spec)


def prompt(length: int, seed: int) -> list[int]:
    """Random ids, none of which ends a text."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(7, VOCAB, (length,), generator=generator).tolist()


def run(engine: Engine, asked: dict[str, tuple[list[int], Decoding]]) -> dict[str, Completion]:
    """Everything at once, by name."""
    for name, (ids, decoding) in asked.items():
        engine.submit(engine.request(ids, decoding, request_id=name))
    done = {}
    while engine.has_work():
        for event in engine.step():
            if event.completion is not None:
                done[event.request_id] = event.completion
    return done


Prompted = tuple[list[int], Decoding]

CASES: dict[str, tuple[int, Decoding]] = {
    "cautious": (3, Decoding(seed=1)),
    "bold": (21, Decoding(seed=2, entropy_bound=4.0)),
    "stopping": (8, Decoding(seed=3, entropy_bound=30.0, stop_entropy=5.0)),
    "greedy": (13, Decoding(seed=4, entropy_bound=1.0, stop_entropy=5.0, temperature=0.0)),
    "cool": (1, Decoding(seed=5, entropy_bound=6.0, stop_entropy=2.0, temperature=0.3)),
}
"""Prompt lengths and decoding: with the model's falling temperature, a fixed one and none."""


def case(name: str, **settings: Any) -> Prompted:
    length, decoding = CASES[name]
    return prompt(length, seed=length), replace(
        decoding, **{"steps": STEPS, "max_tokens": LONG, **settings}
    )


def generate_plainly(
    patch: pytest.MonkeyPatch, denoiser: DiffusionGemmaDenoiser, stock: Any, asked: Prompted
) -> tuple[list[int], int]:
    """What transformers gives, and its forwards."""
    ids, decoding = asked[0], denoiser.spec.resolve(asked[1])
    assert decoding.seed is not None
    assert decoding.max_tokens is not None
    assert decoding.steps is not None
    assert decoding.entropy_bound is not None
    assert decoding.stop_entropy is not None
    return stock_generate(
        patch,
        stock,
        ids,
        seed=decoding.seed,
        max_tokens=decoding.max_tokens,
        steps=decoding.steps,
        entropy_bound=decoding.entropy_bound,
        stop_entropy=decoding.stop_entropy,
        temperature=decoding.temperature,
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", CASES)
def test_tokens_are_those_of_transformers(
    denoisers: dict[str, DiffusionGemmaDenoiser],
    stocks: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    model: str,
) -> None:
    """Over several canvases, to an end token or to the limit, with as many forwards."""
    asked = case(name)
    expected, forwards = generate_plainly(monkeypatch, denoisers[model], stocks[model], asked)
    completion = run(engine_of(denoisers[model]), {name: asked})[name]
    assert list(completion.token_ids) == expected
    assert completion.usage.forwards == forwards


def test_the_cases_stop_early_and_end_in_later_canvases(
    denoisers: dict[str, DiffusionGemmaDenoiser],
) -> None:
    """What the comparison above would otherwise not compare."""
    done = run(engine_of(denoisers["calm"]), {name: case(name) for name in CASES})
    lengths = {name: len(c.token_ids) for name, c in done.items()}
    assert any(CANVAS < n < LONG for n in lengths.values())
    assert LONG in lengths.values()
    canvases = {name: -(-(n + 1) // CANVAS) for name, n in lengths.items()}
    early = [name for name, c in done.items() if c.usage.forwards < STEPS * canvases[name]]
    assert len(early) >= 3


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("rows", [2, 5])
def test_a_row_alone_is_the_row_in_a_batch(
    denoisers: dict[str, DiffusionGemmaDenoiser], model: str, rows: int
) -> None:
    """Beside prompts of other lengths and other decoding, joining and leaving between forwards."""
    asked = {name: case(name) for name in CASES}
    asked["short"] = case("bold", max_tokens=3, seed=9)
    alone = {
        name: run(engine_of(denoisers[model]), {name: row})[name].token_ids
        for name, row in asked.items()
    }
    together = run(engine_of(denoisers[model], max_rows=rows), asked)
    assert {name: c.token_ids for name, c in together.items()} == alone


@pytest.mark.parametrize("name", ["bold", "greedy"])
def test_without_cache_the_tokens_are_the_same(
    denoisers: dict[str, DiffusionGemmaDenoiser], name: str
) -> None:
    """The context is encoded anew at each forward."""
    denoiser = denoisers["calm"]
    cached = run(engine_of(denoiser), {name: case(name)})[name]
    anew = run(engine_of(denoiser), {name: case(name, cache="none")})[name]
    assert cached.token_ids == anew.token_ids


def test_a_limit_cuts_a_canvas_and_does_not_shorten_it(
    denoisers: dict[str, DiffusionGemmaDenoiser],
) -> None:
    """As many tokens as asked for, those of the longer text."""
    engine = engine_of(denoisers["restless"])
    asked = {"whole": case("bold", max_tokens=CANVAS), "cut": case("bold", max_tokens=CANVAS - 3)}
    done = run(engine, asked)
    assert done["cut"].token_ids == done["whole"].token_ids[: CANVAS - 3]
    assert done["cut"].finish_reason == "length"


def test_pinned_tokens_stay(denoisers: dict[str, DiffusionGemmaDenoiser]) -> None:
    """And the text around them comes from the model."""
    engine = engine_of(denoisers["restless"])
    ids, decoding = case("bold", max_tokens=2 * CANVAS)
    request = replace(engine.request(ids, decoding), pinned=((2, 50), (CANVAS + 1, 60)))
    engine.submit(request)
    done = [e.completion for _ in range(40) for e in engine.step() if e.completion is not None]
    assert len(done[0].token_ids) == 2 * CANVAS
    assert (done[0].token_ids[2], done[0].token_ids[CANVAS + 1]) == (50, 60)
