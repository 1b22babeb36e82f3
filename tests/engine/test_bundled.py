"""The golden rules with the bundled model, in fp32."""

from __future__ import annotations

from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from raydiff.engine import Engine
from raydiff.models.denoiser import Denoiser
from raydiff.models.loading import load_denoiser
from raydiff.request import Completion, Decoding
from raydiff.text import Tokenizer

SAMPLE = Path(__file__).parents[2] / "jobs" / "sample.parquet"
MIX = (
    Decoding(),
    Decoding(threshold=0.6),
    Decoding(steps=4),
    Decoding(temperature=0.7, seed=3, top_p=0.9),
    Decoding(max_tokens=40, ignore_eos=True, steps=8),
    Decoding(max_tokens=11, steps=4),
)


@pytest.fixture(scope="module")
def denoiser() -> Denoiser:
    torch.set_num_threads(1)
    return load_denoiser("summarizer", device="cpu", dtype="fp32")


@pytest.fixture(scope="module")
def documents() -> list[str]:
    texts: list[str] = pq.read_table(SAMPLE, columns=["text"]).column(0).to_pylist()
    return [text[:300] for text in texts[:6]]


def fresh(denoiser: Denoiser) -> Engine:
    return Engine(denoiser, Tokenizer.load("summarizer"))


def together(denoiser: Denoiser, documents: list[str], backwards: bool) -> dict[str, Completion]:
    engine = fresh(denoiser)
    requests = [
        engine.request(text, MIX[i % len(MIX)], request_id=str(i))
        for i, text in enumerate(documents)
    ]
    done: dict[str, Completion] = {}
    for request in reversed(requests) if backwards else requests:
        engine.submit(request)
        done |= {e.request_id: e.completion for e in engine.step() if e.completion}
    while engine.has_work():
        done |= {e.request_id: e.completion for e in engine.step() if e.completion}
    return done


def test_alone_equals_any_batch_and_arrival_order(denoiser: Denoiser, documents: list[str]) -> None:
    forwards = together(denoiser, documents, backwards=False)
    backwards = together(denoiser, documents, backwards=True)
    for i, text in enumerate(documents):
        alone = fresh(denoiser).generate([text], MIX[i % len(MIX)])[0]
        assert alone.token_ids == forwards[str(i)].token_ids == backwards[str(i)].token_ids


def test_a_sure_end_closes_the_block_however_wide_the_rows_beside_it(denoiser: Denoiser) -> None:
    texts: list[str] = pq.read_table(SAMPLE, columns=["text"]).column(0).to_pylist()[:11]
    together = fresh(denoiser).generate(texts, Decoding(steps=16))
    for text, one in zip(texts, together, strict=True):
        assert fresh(denoiser).generate([text], Decoding(steps=16))[0].token_ids == one.token_ids


def test_cached_equals_recomputed_from_scratch(denoiser: Denoiser, documents: list[str]) -> None:
    for decoding in (Decoding(max_tokens=48, ignore_eos=True, steps=8), Decoding(threshold=0.5)):
        cached, scratch = (
            fresh(denoiser).generate(documents[:4], replace(decoding, cache=cache))
            for cache in ("auto", "none")
        )
        assert [c.token_ids for c in cached] == [c.token_ids for c in scratch]


def test_summaries_end_by_themselves_without_special_tokens(
    denoiser: Denoiser, documents: list[str]
) -> None:
    spec = denoiser.spec
    done = fresh(denoiser).generate(documents)
    assert sum(c.finish_reason == "stop" for c in done) >= len(done) - 1
    for completion in done:
        assert not {spec.mask_id, spec.pad_id, *spec.end_ids} & set(completion.token_ids)


def test_a_literal_mask_token_in_a_document_is_text(denoiser: Denoiser) -> None:
    tokenizer = Tokenizer.load("summarizer")
    mask = tokenizer.decode([denoiser.spec.mask_id])
    ids = tokenizer.encode(f"a {mask} b")
    assert denoiser.spec.mask_id not in ids
    assert tokenizer.decode(ids) == f"a {mask} b"


def test_bfloat16_stays_close_to_float32(denoiser: Denoiser, documents: list[str]) -> None:
    """Rounding may flip a close call, and what follows from it, but not most of a text."""
    half = load_denoiser("summarizer", device="cpu", dtype="bf16")
    exact, rounded = (fresh(d).generate(documents) for d in (denoiser, half))
    alike = [
        SequenceMatcher(None, a.token_ids, b.token_ids, autojunk=False).ratio()
        for a, b in zip(exact, rounded, strict=True)
    ]
    assert sum(alike) / len(alike) > 0.7
