"""Benchmarks that go through Ray: a real cluster, a real app, a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raydiff.bench.corpus import CorpusBench, run_corpus_bench
from raydiff.bench.serve import ServeBench, run_serve_bench

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_concurrent_http_requests_all_succeed_and_share_forwards(
    corpus: Path, tiny_checkpoint: Path
) -> None:
    bench = ServeBench(
        input=str(corpus), model=str(tiny_checkpoint), dtype="fp32", threads=1, clients=5
    )
    report: dict[str, Any] = run_serve_bench(bench)
    totals = report["totals"]
    assert (totals["requests"], totals["failed"]) == (5, 0)
    assert 1 <= totals["rows_per_forward"] <= 5
    assert totals["output_tokens_per_s"] > 0
    assert 0 < report["latency"]["p50_s"] <= report["latency"]["max_s"]


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
