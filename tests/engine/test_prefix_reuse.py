"""Prompts that begin alike are encoded once, and no token changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.engine.extent import context_length
from raydiff.engine.prefix import MIN_SEGMENT
from raydiff.models.denoiser import Denoiser
from raydiff.models.loading import load_denoiser
from raydiff.models.random import random_denoiser
from raydiff.request import Completion, Decoding
from tests.engine.conftest import ListRecorder, character_tokenizer
from tests.families.tiny import BY_NAME
from tests.models.tiny_gemma import published_weights, tiny_config, tiny_denoiser, tiny_stock

MODELS = ("sdar", "fast-dllm", "causal-encoder")
"""Causal blocks, causal blocks with shifted logits, and a causal encoder with sliding layers."""
SHARED = 2 * MIN_SEGMENT
ON, OFF = 2**30, 0


@pytest.fixture(scope="module", params=MODELS)
def denoiser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Denoiser:
    if request.param == "causal-encoder":
        stock = tiny_stock(tiny_config(), sure=1.0)
        denoiser: Denoiser = tiny_denoiser(tiny_config(), published_weights(stock))
    else:
        denoiser = tiny_sdar(tmp_path_factory.mktemp(request.param), request.param)
    return roomy(denoiser)


def tiny_sdar(folder: Path, name: str = "sdar") -> Denoiser:
    return load_denoiser(BY_NAME[name].save(folder), "cpu", "fp32")


def roomy(denoiser: Denoiser) -> Denoiser:
    """The same model with room for longer prompts."""
    spec = replace(denoiser.spec, max_prompt_tokens=200, context_length=256, max_new_tokens=56)
    denoiser.spec = spec
    return denoiser


def engine_of(denoiser: Denoiser, kept: int | None, **settings: int) -> tuple[Engine, ListRecorder]:
    recorder = ListRecorder()
    chosen = EngineSettings(prefix_cache_bytes=kept, **settings)
    return Engine(denoiser, character_tokenizer(denoiser.spec), chosen, recorder), recorder


def encoded(recorder: ListRecorder) -> int:
    """Positions that were encoded."""
    return sum(step.positions for step in recorder.steps if step.kind == "encode")


def ids(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(8, 60, (length,), generator=generator).tolist()


SYSTEM = ids(SHARED, 0)
PROMPTS = [[*SYSTEM, *ids(length, 10 + length)] for length in (5, 9, 14)]
DECODING = Decoding(max_tokens=10, steps=2, ignore_eos=True, seed=1)


def tokens(completions: Sequence[Completion]) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in completions]


def test_texts_are_the_same_with_and_without_reuse(denoiser: Denoiser) -> None:
    without, _ = engine_of(denoiser, OFF)
    engine, recorder = engine_of(denoiser, ON)
    expected = tokens(without.generate(PROMPTS, DECODING))
    assert tokens(engine.generate(PROMPTS, DECODING)) == expected
    assert tokens(engine.generate(PROMPTS[::-1], DECODING)) == expected[::-1]
    assert sum(s.prefix.reused_tokens for s in recorder.steps if s.prefix) > 0
    assert len(set(expected)) > 1


def test_a_reused_beginning_gives_the_cache_of_a_fresh_encoding(denoiser: Denoiser) -> None:
    """What a row holds before its first denoising forward, to 1e-5."""
    caches = []
    for kept in (OFF, ON):
        engine, _ = engine_of(denoiser, kept)
        if kept:
            engine.generate(PROMPTS[:1], DECODING)
        engine.submit(engine.request(PROMPTS[1], DECODING, request_id="row"))
        engine.step()
        (slab,) = engine._runner._slabs.values()
        (canvas,) = engine.canvases()
        caches.append([kv.clone() for kv in slab.read(slab.rows(["row"]), context_length(canvas))])
    for fresh, reused in zip(*caches, strict=True):
        assert fresh.shape[4] >= SHARED
        assert torch.allclose(fresh, reused, atol=1e-5)


def test_a_shared_system_prompt_is_encoded_once(denoiser: Denoiser) -> None:
    """Whether requests come one after another or all at once."""
    engine, recorder = engine_of(denoiser, OFF)
    engine.generate(PROMPTS, DECODING)
    whole = encoded(recorder)
    for at_once in (True, False):
        engine, recorder = engine_of(denoiser, ON)
        for prompts in [PROMPTS] if at_once else [[p] for p in PROMPTS]:
            engine.generate(prompts, DECODING)
        assert encoded(recorder) == whole - (len(PROMPTS) - 1) * SHARED


def test_an_identical_prompt_needs_only_its_unfinished_segment(denoiser: Denoiser) -> None:
    engine, recorder = engine_of(denoiser, ON)
    decoding = replace(DECODING, max_tokens=1)
    first, again = (engine.generate([SYSTEM], decoding) for _ in range(2))
    assert encoded(recorder) == SHARED
    assert tokens(first) == tokens(again)
    (last,) = [s.prefix for s in recorder.steps if s.prefix][-1:]
    assert (last.lookups, last.hits, last.reused_tokens) == (1, 1, SHARED)


@pytest.mark.parametrize("segments", [1, 3])
def test_a_tiny_bound_evicts_and_changes_no_token(denoiser: Denoiser, segments: int) -> None:
    spec = denoiser.spec
    bound = segments * MIN_SEGMENT * spec.cache_bytes_per_position(denoiser.dtype.itemsize)
    prompts = [ids(length, length) for length in (70, 75, 33, 120)]
    prompts += [[*prompts[0][:64], *ids(9, 1)], prompts[2], [*prompts[3][:96], *ids(4, 2)]]
    without, _ = engine_of(denoiser, OFF)
    engine, recorder = engine_of(denoiser, bound, max_rows=2)
    expected = tokens(without.generate(prompts, DECODING))
    for _ in range(2):
        assert tokens(engine.generate(prompts, DECODING)) == expected
    stats = [step.prefix for step in recorder.steps if step.prefix]
    assert sum(s.evictions for s in stats) > 0
    assert max(s.held_bytes for s in stats) <= bound


def test_rows_that_share_nothing_are_encoded_together(denoiser: Denoiser) -> None:
    engine, recorder = engine_of(denoiser, ON)
    engine.generate([ids(40, seed) for seed in range(4)], replace(DECODING, max_tokens=1))
    assert [s.rows for s in recorder.steps if s.kind == "encode"] == [4]


def test_rows_are_counted_by_what_is_left_to_encode(denoiser: Denoiser) -> None:
    """Prompts whose beginning is there fill a forward only with their ends."""
    engine, recorder = engine_of(denoiser, ON, max_prefill_tokens=3 * MIN_SEGMENT)
    decoding = replace(DECODING, max_tokens=1)
    engine.generate([SYSTEM], decoding)
    engine.generate(PROMPTS, decoding)
    assert [s.rows for s in recorder.steps if s.kind == "encode"] == [1, len(PROMPTS)]


def test_without_the_exact_cache_nothing_is_kept(denoiser: Denoiser) -> None:
    engine, recorder = engine_of(denoiser, ON)
    engine.generate(PROMPTS, replace(DECODING, cache="none"))
    assert all(step.kind == "denoise" for step in recorder.steps)


def test_a_whole_prompt_is_reused_where_it_is_one_piece() -> None:
    """The bundled model's attention: a prompt is encoded in both directions."""
    denoiser = random_denoiser(seed=3)
    decoding = Decoding(max_tokens=8, ignore_eos=True)
    prompts = [ids(12, 0), [*ids(12, 0)[:11], 9], ids(12, 0)]
    without, _ = engine_of(denoiser, OFF)
    engine, recorder = engine_of(denoiser, ON)
    expected = tokens(without.generate(prompts, decoding))
    assert tokens(engine.generate(prompts, decoding)) == expected
    assert encoded(recorder) == 24


@pytest.mark.parametrize(("attention", "expected"), [("sdar", True), ("summarizer", False)])
def test_reuse_is_on_where_prompts_can_share_a_beginning(
    attention: str, expected: bool, tmp_path: Path
) -> None:
    denoiser = random_denoiser() if attention == "summarizer" else roomy(tiny_sdar(tmp_path))
    engine, recorder = engine_of(denoiser, None)
    engine.generate([ids(40, 0)], replace(DECODING, max_tokens=1))
    assert any(step.prefix for step in recorder.steps) == expected


def test_warm_up_leaves_nothing_behind(denoiser: Denoiser) -> None:
    engine, recorder = engine_of(denoiser, ON)
    engine.warm_up()
    engine.generate(PROMPTS[:1], DECODING)
    (stats,) = [step.prefix for step in recorder.steps if step.prefix][:1]
    assert stats.hits == 0


def test_memory_that_is_short_is_taken_from_kept_prompts_first(
    denoiser: Denoiser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that fails alone is tried again without them; with nothing kept it ends."""
    engine, _ = engine_of(denoiser, ON)
    engine.generate(PROMPTS[:1], DECODING)
    encode, failures = type(denoiser).encode, iter([True])

    def failing(self: Denoiser, *args: object) -> object:
        if next(failures, False):
            raise MemoryError("test")
        return encode(self, *args)

    monkeypatch.setattr(type(denoiser), "encode", failing)
    (completion,) = engine.generate(PROMPTS[1:2], DECODING)
    assert completion.finish_reason == "length"
    failures = iter([True, True, True])
    other, _ = engine_of(denoiser, ON)
    (completion,) = other.generate(PROMPTS[1:2], DECODING)
    assert completion.finish_reason == "error"
