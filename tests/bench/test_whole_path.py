"""Benchmarks that go through Ray: a real cluster, a real app, a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raydiff.bench.corpus import CorpusBench, run_corpus_bench
from raydiff.bench.serving.bench import run_serve_bench
from raydiff.bench.serving.settings import ServeBench

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_concurrent_http_requests_all_succeed_and_share_forwards(
    corpus: Path, tiny_checkpoint: Path
) -> None:
    bench = ServeBench(
        input=str(corpus),
        model=str(tiny_checkpoint),
        dtype="fp32",
        threads=1,
        contenders=("http", "bare"),
        clients=(5,),
        requests=10,
    )
    report: dict[str, Any] = run_serve_bench(bench)
    http, bare = report["cases"]
    assert (http["contender"], http["requests"], http["success_rate"]) == ("http", 5, 1)
    assert (bare["contender"], bare["requests"], bare["success_rate"]) == ("bare", 5, 1)
    assert 1 <= http["rows_per_forward"] <= 5
    assert http["output_tokens_per_s"] > 0
    assert 0 < http["total"]["p50_s"] <= http["total"]["max_s"]
    assert report["comparisons"][0]["tokens_ratio"] > 0


def test_a_job_and_the_bare_engine_take_turns_over_the_same_documents(
    corpus: Path, tiny_checkpoint: Path
) -> None:
    bench = CorpusBench(
        input=str(corpus), model=str(tiny_checkpoint), dtype="fp32", threads=1, repeats=2
    )
    report = run_corpus_bench(bench)
    engine, job = report["contenders"]
    assert (engine["name"], job["name"]) == ("engine", "job")
    assert len(engine["seconds"]) == len(job["seconds"]) == 2
    assert engine["documents_per_s"] == pytest.approx(5 / engine["seconds_median"])
    assert report["ratio"] > 0
    assert 0 < engine["busy"] <= 1.0
    assert job["forwards"] > 0
    assert job["busy_s"] > 0


def test_documents_of_mixed_lengths_are_cut_and_merged_by_both(
    corpus: Path, tiny_checkpoint: Path
) -> None:
    bench = CorpusBench(
        input=str(corpus),
        model=str(tiny_checkpoint),
        dtype="fp32",
        threads=1,
        repeats=1,
        documents=6,
        mixed=(5, 200),
    )
    report = run_corpus_bench(bench)
    assert report["workload"]["documents"] == 6
    assert report["workload"]["tokens"] == [5, 200]
    engine, job = report["contenders"]
    assert min(engine["forwards"], job["forwards"]) > 0
