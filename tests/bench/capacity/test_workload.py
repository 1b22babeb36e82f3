"""What documents ask of a model, and how sure a sample makes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raydiff.bench.capacity.workload import (
    Answering,
    Estimate,
    measure_work,
    positions,
    totals,
)
from raydiff.bench.sample import Document
from raydiff.config import CorpusSettings
from raydiff.corpus.reading import Rejected
from raydiff.decoding import Decoding
from raydiff.families import load_spec
from raydiff.request import Usage
from raydiff.text import Tokenizer

USAGE = Usage(prompt_tokens=100, completion_tokens=10, forwards=6)


def document(text: str | Rejected, run: int = 0) -> Document:
    return Document(file="f", row=0, text=text, reference=None, run=run)


def work(model: Path, texts: list[str | Rejected], answering: Answering) -> list[dict[str, float]]:
    settings = CorpusSettings(input="", output="", model=str(model))
    tokenizer = Tokenizer.load(model)
    decoding = tokenizer.spec.resolve(Decoding())
    return measure_work(settings, [document(t) for t in texts], decoding, tokenizer, answering)


def test_a_short_document_is_one_request(tiny_checkpoint: Path) -> None:
    answering = Answering(output_tokens=4.4, forwards=7.5)
    (one,) = work(tiny_checkpoint, ["a small library"], answering)
    tokenizer = Tokenizer.load(tiny_checkpoint)
    assert one["requests"] == 1
    assert one["prompt_tokens"] == len(tokenizer.prompt_ids("a small library"))
    assert one["output_tokens"] == pytest.approx(4.4)
    assert one["forwards"] == pytest.approx(7.5)


def test_a_long_document_is_chunks_and_a_merge(tiny_checkpoint: Path) -> None:
    answering = Answering(output_tokens=4, forwards=8)
    (one,) = work(tiny_checkpoint, ["a small library of data. " * 400], answering)
    limit = load_spec(tiny_checkpoint).max_prompt_tokens
    assert one["requests"] > one["prompt_tokens"] / limit
    assert one["forwards"] == 8 * one["requests"]


def test_what_is_no_text_asks_nothing_and_copies_count_each(tiny_checkpoint: Path) -> None:
    null = Rejected(error_type="NullDocument", message="")
    found = work(tiny_checkpoint, ["tools", null, "tools"], Answering(output_tokens=2, forwards=2))
    assert [one["requests"] for one in found] == [1, 0, 1]


def test_positions_follow_the_cache() -> None:
    cached, plain = load_spec("random:tiny-summarizer"), load_spec("random:tiny-llada")
    assert cached.cache == "exact"
    assert positions(cached, Decoding(block_length=16), USAGE) == 100 + 6 * 16
    assert plain.cache == "none"
    assert positions(plain, Decoding(max_tokens=32), USAGE) == 6 * (100 + 32)
    assert positions(plain, Decoding(max_tokens=32, guidance=2.0), USAGE) == 2 * 6 * 132


def one(value: float) -> dict[str, float]:
    names = ("requests", "prompt_tokens", "output_tokens", "forwards", "positions")
    return dict.fromkeys(names, value)


def total(values: list[float], runs: list[int], rows: int, seed: int = 0) -> Estimate:
    documents = [document("x", run) for run in runs]
    answering = Answering(output_tokens=1, forwards=1)
    return totals([one(v) for v in values], documents, rows, answering, seed)["prompt_tokens"]


def test_a_total_is_the_mean_times_the_documents() -> None:
    found = total([10.0, 20.0, 30.0, 40.0], [0, 1, 2, 3], rows=1000)
    assert found.value == pytest.approx(25_000)
    assert found.low < 25_000 < found.high


def test_the_whole_corpus_leaves_no_doubt() -> None:
    found = total([10.0, 20.0], [0, 1], rows=2)
    assert (found.low, found.value, found.high) == pytest.approx((30, 30, 30))


def test_alike_neighbours_tell_less() -> None:
    values = [10.0] * 8 + [50.0] * 8 + [30.0] * 8 + [70.0] * 8
    together = total(values, [i // 8 for i in range(32)], rows=10_000)
    apart = total(values, list(range(32)), rows=10_000)
    assert together.high - together.low > 1.5 * (apart.high - apart.low)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(1)
    hits = 0
    for seed in range(100):
        found = total(list(drawn.normal(100, 30, size=60)), list(range(60)), 10**6, seed)
        hits += found.low <= 100 * 10**6 <= found.high
    assert 88 <= hits <= 99


def test_what_a_measurement_leaves_in_doubt_widens_what_follows_from_it() -> None:
    answering = Answering(output_tokens=1, forwards=1, output_spread=0.1, forwards_spread=0.3)
    found = totals([one(10.0), one(10.0)], [document("x", 0), document("x", 1)], 2, answering, 0)
    assert (found["prompt_tokens"].low, found["prompt_tokens"].high) == pytest.approx((20, 20))
    assert (found["output_tokens"].low, found["output_tokens"].high) == pytest.approx((18, 22))
    assert (found["forwards"].low, found["positions"].high) == pytest.approx((14, 26))


def test_independent_doubts_add_up_as_squares() -> None:
    found = Estimate(value=100.0, low=97.0, high=103.0).widened(0.04)
    assert (found.low, found.value, found.high) == pytest.approx((95, 100, 105))
