"""The prefix and dual caches of fully bidirectional decoders, where they must be exact.

In a model of one layer keys and values depend on their own token alone; and a cache computed afresh
at every step is none at all.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from raydiff.decoding import Decoding
from raydiff.engine import Engine
from tests.families.test_texts import prompts, texts
from tests.families.tiny import TINY, Tiny

FULL = [tiny for tiny in TINY if tiny.block_length is None]


def engine_of(tiny: Tiny, folder: Path) -> Engine:
    engine = Engine.load(tiny.save(folder), device="cpu", dtype="fp32")
    torch.set_num_threads(1)
    return engine


def decoding(cache: str, **settings: int) -> Decoding:
    base = {"policy": "threshold", "threshold": 0.3, "max_tokens": 12, "block_length": 4}
    return Decoding.from_mapping(
        {**base, "temperature": 0.0, "ignore_eos": True, "cache": cache, **settings}
    )


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("tiny", FULL, ids=lambda tiny: tiny.name)
def test_one_layer_makes_approximate_caches_exact(tiny: Tiny, cache: str, tmp_path: Path) -> None:
    engine = engine_of(tiny.one_layer(), tmp_path)
    exact = texts(engine, prompts(), decoding("none"))
    assert texts(engine, prompts(), decoding(cache)) == exact
    assert len({token for text in exact for token in text}) > 2


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("tiny", FULL, ids=lambda tiny: tiny.name)
def test_a_cache_refreshed_at_every_step_is_exact(tiny: Tiny, cache: str, tmp_path: Path) -> None:
    engine = engine_of(tiny, tmp_path)
    exact = texts(engine, prompts(), decoding("none"))
    assert texts(engine, prompts(), decoding(cache, refresh_steps=1)) == exact


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("tiny", FULL, ids=lambda tiny: tiny.name)
def test_approximate_caches_change_no_row_beside_another(
    tiny: Tiny, cache: str, tmp_path: Path
) -> None:
    engine = engine_of(tiny, tmp_path)
    together = texts(engine, prompts(), decoding(cache))
    assert [texts(engine, [prompt], decoding(cache))[0] for prompt in prompts()] == together
