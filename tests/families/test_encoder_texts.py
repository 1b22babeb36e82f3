"""Whole texts of the masked encoders through the engine, from checkpoints as published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from raydiff.decoding import Decoding
from raydiff.engine import Engine
from tests.models import test_masked_encoders as bert
from tests.models import test_modernbert as modern
from tests.models.plain.decoding import Loop, by_quota, by_threshold
from tests.models.published import Weights, write_checkpoint

MAX_TOKENS, PART = 9, 4
PROMPTS = ([10, 11, 12], [13] * 7, [20, 21, 22, 23, 24])


@dataclass(frozen=True)
class Encoder:
    """A published checkpoint and its plain arithmetic over all tokens of a row."""

    name: str
    config: dict[str, Any]
    weights: Weights
    special_ids: Mapping[str, int]
    logits: Callable[[Weights, Tensor, Tensor, Tensor], Tensor]


def _bert(kind: bert.Kind) -> Encoder:
    def logits(w: Weights, tokens_L: Tensor, places_L: Tensor, sees_LL: Tensor) -> Tensor:
        return bert.plain_logits(w, kind, tokens_L, places_L, sees_LL)

    return Encoder(
        kind.name,
        bert.published_config(kind),
        bert.published_weights(kind),
        kind.special_ids,
        logits,
    )


ENCODERS = [
    _bert(bert.BERT),
    _bert(bert.ROBERTA),
    Encoder(
        "modernbert",
        modern.CONFIG | modern.ON_THE_HUB,
        modern.published_weights(),
        modern.SPECIAL_IDS,
        modern.plain_logits,
    ),
]


@pytest.fixture(scope="module", params=ENCODERS, ids=lambda encoder: encoder.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Encoder, Engine]:
    encoder: Encoder = request.param
    folder: Path = tmp_path_factory.mktemp(encoder.name)
    write_checkpoint(folder, encoder.config, encoder.weights, encoder.special_ids)
    engine = Engine.load(folder, device="cpu", dtype="fp32")
    torch.set_num_threads(1)
    return encoder, engine


def texts(engine: Engine, decoding: Decoding) -> list[tuple[int, ...]]:
    prompts = [[*engine.spec.prompt_prefix_ids, *prompt] for prompt in PROMPTS]
    return [completion.token_ids for completion in engine.generate(prompts, decoding)]


@pytest.mark.parametrize(
    ("given", "choose"),
    [
        ({"policy": "quota", "steps": 2}, by_quota(2)),
        ({"policy": "threshold", "threshold": 0.3}, by_threshold(0.3)),
    ],
    ids=["quota", "threshold"],
)
def test_texts_equal_a_plain_loop_over_the_whole_row(
    pair: tuple[Encoder, Engine], given: dict[str, Any], choose: Any
) -> None:
    """Prompts of unequal length in one batch, each followed by masks and by nothing else."""
    encoder, engine = pair
    spec = engine.spec

    def logits(tokens_L: Tensor) -> Tensor:
        length = len(tokens_L)
        sees_LL = torch.ones(length, length, dtype=torch.bool)
        return encoder.logits(encoder.weights, tokens_L, torch.arange(length), sees_LL)

    loop = Loop(
        logits=logits,
        mask=spec.mask_id,
        forbidden=(spec.mask_id, *spec.end_ids, *spec.forbidden_ids),
        part_length=PART,
        frame_length=None,
        shift=False,
        first_at_once=False,
    )
    expected = [
        tuple(loop.generate([*spec.prompt_prefix_ids, *prompt], MAX_TOKENS, choose))
        for prompt in PROMPTS
    ]
    decoding = Decoding(
        **given, max_tokens=MAX_TOKENS, block_length=PART, temperature=0.0, ignore_eos=True
    )
    assert texts(engine, decoding) == expected
    assert len({token for text in expected for token in text}) > 4  # else it would say little


def test_a_text_ends_at_its_separator(pair: tuple[Encoder, Engine]) -> None:
    _, engine = pair
    given = set(engine.spec.forbidden_ids) | {engine.spec.mask_id}
    for seed in range(3):
        for text in texts(engine, Decoding(max_tokens=MAX_TOKENS, temperature=1.0, seed=seed)):
            assert not given & set(text)
            assert engine.spec.end_ids[0] not in text


def test_text_goes_in_after_the_begin_token(pair: tuple[Encoder, Engine]) -> None:
    _, engine = pair
    ids = engine.tokenizer.prompt_ids("w10 w11")
    assert ids == (*engine.spec.prompt_prefix_ids, 10, 11)
