"""Whole texts of the decoder families through the engine, from checkpoints as published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from raydiff.decoding import Decoding
from raydiff.engine import Engine
from raydiff.spec import ModelSpec
from tests.families.tiny import BY_NAME, END, MASK, TINY, Tiny
from tests.models.plain.decoding import Choose, Loop, by_entropy, by_quota, by_threshold, edited

MAX_TOKENS = 11
PROMPT_LENGTHS = (3, 8, 13)
"""With blocks of 4 and of 8: shorter than one, whole ones, and whole ones and a part."""


@pytest.fixture(scope="module", params=TINY, ids=lambda tiny: tiny.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tiny, Engine]:
    tiny: Tiny = request.param
    folder: Path = tiny.save(tmp_path_factory.mktemp(tiny.name))
    engine = Engine.load(folder, device="cpu", dtype="fp32")
    torch.set_num_threads(1)
    return tiny, engine


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randint(0, MASK, (length,), generator=generator).tolist() for length in PROMPT_LENGTHS
    ]


def part_of(spec: ModelSpec) -> int:
    """A block of the request, shorter than the model's where that is allowed."""
    return 4 if spec.attention == "full" else max(2, spec.block_length // 2)


def loop(tiny: Tiny, spec: ModelSpec) -> Loop:
    return Loop(
        logits=lambda tokens: tiny.logits(tokens),
        mask=MASK,
        forbidden=(MASK, END, *spec.forbidden_ids),
        part_length=part_of(spec),
        frame_length=tiny.block_length,
        shift=spec.shift,
        first_at_once=spec.commit_first,
    )


def texts(
    engine: Engine, rows: Sequence[Sequence[int]], decoding: Decoding
) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in engine.generate(rows, decoding)]


QUOTA = Decoding(policy="quota", steps=2, score="confidence", schedule="linear")
ENTROPY = Decoding(policy="quota", steps=3, score="entropy", schedule="timestep")
THRESHOLD = Decoding(policy="threshold", threshold=0.3)


@pytest.mark.parametrize(
    ("policy", "choose"),
    [(QUOTA, by_quota(2)), (ENTROPY, by_entropy(3)), (THRESHOLD, by_threshold(0.3))],
    ids=["quota", "entropy", "threshold"],
)
def test_texts_equal_the_published_loops(
    pair: tuple[Tiny, Engine], policy: Decoding, choose: Choose
) -> None:
    """Prompts of unequal length in one batch; a last block that the prompt fills in part."""
    tiny, engine = pair
    spec = engine.spec
    decoding = Decoding(
        **policy.given()
        | {
            "max_tokens": MAX_TOKENS,
            "block_length": part_of(spec),
            "temperature": 0.0,
            "ignore_eos": True,
        }
    )
    plain = loop(tiny, spec)
    expected = [tuple(plain.generate(p, MAX_TOKENS, choose)) for p in prompts()]
    assert texts(engine, prompts(), decoding) == expected
    assert len({token for text in expected for token in text}) > 4  # else it would say little


@pytest.mark.parametrize("max_edits", [0, 1, 16])
def test_edited_texts_equal_the_published_loop(max_edits: int, tmp_path: Path) -> None:
    """LLaDA2.1: committed tokens change their mind, the prompt's never."""
    whole = BY_NAME["llada2"]
    tiny = replace(whole, config={**whole.config, "block_size": 8}, block_length=8)
    engine = Engine.load(tiny.save(tmp_path), device="cpu", dtype="fp32")
    torch.set_num_threads(1)
    decoding = Decoding.from_mapping(
        {
            "policy": "edit",
            "threshold": 0.3,
            "edit_threshold": 0.2,
            "max_edits": max_edits,
            "temperature": 0.0,
            "ignore_eos": True,
        }
    )
    for prompt, tokens in zip(prompts(), (13, 8, 19), strict=True):
        expected = edited(tiny.logits, prompt, tokens, 8, MASK, (MASK, END), 0.3, 0.2, max_edits)
        assert texts(engine, [prompt], replace(decoding, max_tokens=tokens)) == [tuple(expected)]


@pytest.mark.parametrize("cache", ["auto", "none"])
def test_a_text_is_the_same_alone_and_in_any_batch(pair: tuple[Tiny, Engine], cache: str) -> None:
    _, engine = pair
    decoding = Decoding.from_mapping(
        {"max_tokens": MAX_TOKENS, "seed": 7, "temperature": 0.7, "cache": cache}
    )
    together = texts(engine, prompts(), decoding)
    alone = [texts(engine, [prompt], decoding)[0] for prompt in prompts()]
    assert together == alone
    assert texts(engine, prompts()[::-1], decoding)[::-1] == together


def test_the_exact_cache_changes_no_token(pair: tuple[Tiny, Engine]) -> None:
    _, engine = pair
    decoding = Decoding(max_tokens=MAX_TOKENS, temperature=0.0, ignore_eos=True, cache="none")
    cached = Decoding(max_tokens=MAX_TOKENS, temperature=0.0, ignore_eos=True)
    assert texts(engine, prompts(), decoding) == texts(engine, prompts(), cached)


def test_no_mask_survives_and_texts_end_at_their_end_token(pair: tuple[Tiny, Engine]) -> None:
    _, engine = pair
    for completion in engine.generate(prompts(), Decoding(max_tokens=MAX_TOKENS, seed=3)):
        assert MASK not in completion.token_ids
        assert END not in completion.token_ids
        if completion.finish_reason == "length":
            assert len(completion.token_ids) == MAX_TOKENS
