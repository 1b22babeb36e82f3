"""The resume benchmark counts what a rerun does, over runs small enough for a test."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.bench.resume import ResumeBench, run_resume_bench
from raydiff.bench.scale import ScaleBench, run_scale_bench


def test_a_run_of_many_shards_is_opened_again_and_its_corpus_read(tmp_path: Path) -> None:
    source = tmp_path / "words.parquet"
    pq.write_table(pa.table({"text": ["some words of a document", "and of another one"]}), source)
    bench = ResumeBench(input=str(source), shards=40, pending=3, shard_rows=5, repeats=2)
    report = run_resume_bench(bench, lambda line: None)
    assert (report["run"]["shards"], report["run"]["documents"]) == (40, 200)
    assert len(report["starts"]) == 2
    assert report["ratio"] == report["resume_s"] / report["reading_s"]


def test_a_simulated_run_tells_sizes_and_memory_of_each_step() -> None:
    bench = ScaleBench(shards=500, files=7, pending=20)
    report = run_scale_bench(bench, lambda line: None)
    steps = {step["step"]: step for step in report["steps"]}
    assert report["run"]["shards"] == 500
    assert steps["planned less committed"]["bytes"] == 20 * 8
    assert 0 < steps["load the plan"]["bytes_per_shard"] < 100
    assert all(step["bytes"] > 0 for step in report["steps"])
