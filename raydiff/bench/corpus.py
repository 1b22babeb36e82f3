"""`raydiff bench corpus`: documents/s of a job over those of the bare engine.

The job goes through Ray Data, Serve and the commit protocol; the bare engine gets the same
documents in this process, with the same weights, dtype and threads. They take turns, and start-up
is not counted for either. Beside the ratio stands why it is what it is: how busy the job's
replica was, and what its forwards were padded with.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.bench.bare import BareEngine
from raydiff.bench.busy import Stretch, readings, steady_stretch
from raydiff.bench.lengths import documents_of, mixed_lengths
from raydiff.bench.report import circumstances
from raydiff.bench.workload import load_workload
from raydiff.client import Client
from raydiff.config import (
    AppSettings,
    CorpusSettings,
    Dtype,
    EngineSettings,
    ModelSettings,
    ServeSettings,
    usable_cores,
)
from raydiff.corpus.directory import open_run
from raydiff.corpus.run import execute
from raydiff.engine.counts import Work
from raydiff.families import load_spec
from raydiff.launch import running_app
from raydiff.request import Decoding
from raydiff.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class CorpusBench:
    """Settings of one run."""

    input: str
    model: str = "summarizer"
    dtype: Dtype = "bf16"
    threads: int = 0
    documents: int = 0
    repeats: int = 3
    mixed: tuple[int, int] | None = None
    """Tokens of the shortest and the longest document, made of the input's texts; `None` takes
    the texts as they are, cut to the model's context."""
    max_tokens: int | None = None
    shard_rows: int = 256
    seed: int = 0
    """Of the lengths and of the order of the documents."""

    @property
    def served_model(self) -> ModelSettings:
        """The model as both contenders run it. Nothing is kept of the prompts of earlier rounds."""
        engine = EngineSettings(threads=self.threads or usable_cores(), prefix_cache_bytes=0)
        return ModelSettings(model=self.model, dtype=self.dtype, engine=engine)

    @property
    def decoding(self) -> Decoding:
        """What both are asked for."""
        return Decoding(max_tokens=self.max_tokens)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One pass of a contender over the documents."""

    seconds: float
    work: Work
    steady: Stretch | None = None
    """Of the job: its steady state."""


def run_corpus_bench(
    bench: CorpusBench, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measure both and return the report; `ratio` is the median over the rounds.

    `busy` is a share of all seconds, `steady_busy` of those of the steady state (`busy.py`).

    Raises:
        ClusterError: no cluster can be used.
        ModelError, UsageError: the model or the input cannot be used.
        EngineError: a document failed.
    """
    model = bench.served_model
    texts, workload = documents(bench)
    turns: dict[str, list[Turn]] = {"engine": [], "job": []}
    with _written(texts) as folder, _app(model) as app_name:
        resolved = load_spec(bench.model).resolve(bench.decoding)
        engine = BareEngine(model, _settings(bench, folder, "none"), resolved)
        engine.run(texts)
        _job_turn(bench, folder, "warm-up", app_name)
        for round_ in range(bench.repeats):
            turns["engine"].append(_engine_turn(engine, texts))
            turns["job"].append(_job_turn(bench, folder, f"round-{round_}", app_name))
            progress(
                f"round {round_ + 1}: "
                + ", ".join(f"{name} {taken[-1].seconds:.1f} s" for name, taken in turns.items())
            )
    pairs = zip(turns["engine"], turns["job"], strict=True)
    return {
        "bench": "corpus",
        "circumstances": circumstances(),
        "model": bench.model,
        "dtype": bench.dtype,
        "threads": model.engine.threads,
        "workload": workload,
        "contenders": [
            contender(name, taken, documents=len(texts)) for name, taken in turns.items()
        ],
        "ratio": median(engine.seconds / job.seconds for engine, job in pairs),
    }


def documents(bench: CorpusBench) -> tuple[list[str], dict[str, Any]]:
    """The texts, in an order that says nothing of their lengths, and what a report says of them.

    Raises:
        InputError, ModelError, UsageError: the input or the model cannot be used.
    """
    tokenizer = Tokenizer.load(bench.model)
    workload = load_workload(
        bench.input, tokenizer, documents=0 if bench.mixed else bench.documents
    )
    texts, described = list(workload.texts), workload.describe()
    if bench.mixed:
        count = bench.documents or len(texts)
        lengths = mixed_lengths(count, *bench.mixed, seed=bench.seed)
        texts = documents_of(lengths, texts, tokenizer, bench.seed)
        described = {
            "source": described["source"],
            "documents": count,
            "tokens": list(bench.mixed),
            "tokens_median": median(lengths),
            "tokens_mean": sum(lengths) / count,
            "seed": bench.seed,
        }
    random.Random(bench.seed).shuffle(texts)
    return texts, described


def contender(name: str, turns: Sequence[Turn], documents: int) -> dict[str, Any]:
    """One contender's part of the report: medians over its turns, sums over its forwards."""
    seconds = [turn.seconds for turn in turns]
    work = sum((turn.work for turn in turns), Work())
    steady = [turn.steady for turn in turns if turn.steady]
    return {
        "name": name,
        "seconds": seconds,
        "seconds_median": median(seconds),
        "documents_per_s": documents / median(seconds),
        "busy_s": work.busy_s / len(turns),
        "steady_busy": median(s.busy_fraction for s in steady) if steady else None,
        "steady_s": median(s.seconds for s in steady) if steady else None,
        "busy": work.busy_s / sum(seconds),
        "forwards": work.forwards / len(turns),
        "rows_per_forward": work.rows_per_forward,
        "padding": work.padding_share,
        "context_padding": work.context_padding_share,
    }


def _engine_turn(engine: BareEngine, texts: Sequence[str]) -> Turn:
    before, started = engine.work, time.perf_counter()
    engine.run(texts)
    return Turn(seconds=time.perf_counter() - started, work=engine.work - before)


def _job_turn(bench: CorpusBench, folder: Path, name: str, app_name: str) -> Turn:
    """Its seconds are those from the first shard's reading to the last one's commit."""
    settings = _settings(bench, folder, name)
    client = Client.connect(bench.served_model.served_name, app_name)
    with readings(client) as taken, open_run(settings, bench.decoding) as run:
        report = execute(run, lambda session: None, app_name=app_name)
    return Turn(
        seconds=float(report["session"]["seconds"]),
        work=taken[-1].work - taken[0].work,
        steady=steady_stretch(taken),
    )


def _settings(bench: CorpusBench, folder: Path, name: str) -> CorpusSettings:
    return CorpusSettings(
        input=str(folder / "documents.parquet"),
        output=str(folder / name),
        model=bench.model,
        shard_rows=bench.shard_rows,
        dedupe=False,  # the bare engine, too, does every document
    )


@contextmanager
def _written(texts: Sequence[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="raydiff-bench-") as name:
        folder = Path(name)
        pq.write_table(pa.table({"text": list(texts)}), folder / "documents.parquet")
        yield folder


@contextmanager
def _app(model: ModelSettings) -> Iterator[str]:
    with running_app(AppSettings(models=(model,)), ServeSettings(port=0), reuse=False) as app:
        yield app.app_name
