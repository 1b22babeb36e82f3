"""`raydiff bench resume`: what a rerun costs before work goes on.

A run of many shards is made, nearly all of them committed, with a corpus of real size. Its plan is
opened again, as the same command would, and the time is set against that of reading the corpus as
the workers do. No model runs.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.bench.report import circumstances
from raydiff.config import CorpusSettings
from raydiff.corpus.commit import Totals, commit_shard
from raydiff.corpus.directory import RunDirectory, open_run
from raydiff.corpus.parts import list_parts
from raydiff.corpus.planning import load_plan
from raydiff.corpus.reading import SpanReader
from raydiff.request import Decoding
from raydiff.storage import LocalFolder

_FILES = 20
_GROUP_ROWS = 16_384


@dataclass(frozen=True, kw_only=True)
class ResumeBench:
    """Settings of one run."""

    input: str
    """Parquet whose words and lengths the corpus has."""
    text_column: str = "text"
    shards: int = 10_000
    pending: int = 10
    """Shards that are not committed."""
    shard_rows: int = 256
    repeats: int = 3
    model: str = "summarizer"


def run_resume_bench(bench: ResumeBench, progress: Callable[[str], None]) -> dict[str, Any]:
    """Make the run, open it again, read the corpus; the report has both times and their ratio."""
    with tempfile.TemporaryDirectory(prefix="raydiff-resume-") as root:
        settings = CorpusSettings(
            input=f"{root}/in", output=f"{root}/out", model=bench.model, shard_rows=bench.shard_rows
        )
        progress(f"making {bench.shards * bench.shard_rows:,} documents")
        _make_corpus(bench, Path(root) / "in")
        began_s = time.perf_counter()
        run = _opened(settings)
        planning_s = time.perf_counter() - began_s
        progress(f"planned {len(run.plan.shards):,} shards in {planning_s:.1f} s; committing")
        _commit_most(run, bench.pending)
        starts = [_timed_start(settings, bench.pending) for _ in range(bench.repeats)]
        progress("reading the corpus")
        reading_s = _read_all(run)
        resume_s = sorted(start["resume_s"] for start in starts)[len(starts) // 2]
        return {
            "bench": "resume",
            **circumstances(),
            "run": {
                "shards": len(run.plan.shards),
                "pending": bench.pending,
                "documents": run.plan.rows,
                "input_bytes": run.plan.files.size_bytes,
                "plan_bytes": (Path(root) / "out" / "plan.parquet").stat().st_size,
                "first_plan_s": planning_s,
            },
            "starts": starts,
            "reading_s": reading_s,
            "resume_s": resume_s,
            "ratio": resume_s / reading_s,
        }


def _make_corpus(bench: ResumeBench, folder: Path) -> None:
    """Documents as long as the input's, of its words in a new order each: the input's own texts,
    repeated, would be compressed to nothing and read in no time."""
    folder.mkdir()
    column: Any = pq.read_table(bench.input, columns=[bench.text_column]).column(0)
    texts = column.to_pylist()
    words: Any = np.array([word for text in texts for word in text.split()], dtype=object)
    length = max(1, len(words) // len(texts))
    chance = np.random.default_rng(0)
    rows = bench.shards * bench.shard_rows
    edges = [rows * index // _FILES for index in range(_FILES + 1)]
    for index, (start, stop) in enumerate(itertools.pairwise(edges)):
        drawn = words[chance.integers(len(words), size=(stop - start) * length)].tolist()
        content = pa.table(
            {
                "doc_id": [f"doc-{row:09d}" for row in range(start, stop)],
                "text": [
                    " ".join(drawn[place : place + length])
                    for place in range(0, len(drawn), length)
                ],
            }
        )
        path = folder / f"{index:02d}.parquet"
        pq.write_table(content, path, row_group_size=_GROUP_ROWS, compression="zstd")


def _opened(settings: CorpusSettings) -> RunDirectory:
    with open_run(settings, Decoding()) as run:
        return run


def _commit_most(run: RunDirectory, pending: int) -> None:
    """One real commit, and files of the same content under the other shards' names."""
    folder = run.folder
    assert isinstance(folder, LocalFolder)
    shard = run.plan.shards[0]
    answers = pa.table({"summary": ["a summary of some words"] * shard.rows})
    errors = pa.table({"error_type": pa.array([], pa.string())})
    report = commit_shard(folder, shard, answers, errors, Totals(), started_s=time.time())
    content = folder.read(report.part.name)
    for shard in run.plan.shards[1 : len(run.plan.shards) - pending]:
        name = f"part-{shard.shard_id}-r{shard.rows}-e0.parquet"
        (folder.root / name).write_bytes(content)


def _timed_start(settings: CorpusSettings, pending: int) -> dict[str, float]:
    began_s = time.perf_counter()
    with open_run(settings, Decoding()) as run:
        resume_s = time.perf_counter() - began_s
        assert len(run.pending) == pending, run.pending
        began_s = time.perf_counter()
        plan = load_plan(run.folder)
        load_s = time.perf_counter() - began_s
        list_parts(run.folder, plan)
        list_s = time.perf_counter() - began_s - load_s
    return {"resume_s": resume_s, "load_plan_s": load_s, "list_output_s": list_s}


def _read_all(run: RunDirectory) -> float:
    """Seconds to read and decode every document, with one reader."""
    reader = SpanReader(run.inputs.folder, run.inputs.layout)
    began_s = time.perf_counter()
    rows = sum(len(reader.read(span).texts) for shard in run.plan.shards for span in shard.spans)
    assert rows == run.plan.rows, rows
    return time.perf_counter() - began_s
