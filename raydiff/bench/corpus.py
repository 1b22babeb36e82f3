"""`raydiff bench corpus`: documents/s of a job over those of the bare engine.

The job goes through Ray Data, Serve and the commit protocol; the bare engine gets the same texts
in this process, with the same weights, dtype and threads. They take turns, and start-up is not
counted for either.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.bench.report import circumstances
from raydiff.bench.workload import load_workload
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
from raydiff.engine import Engine
from raydiff.launch import running_app
from raydiff.request import Decoding
from raydiff.text import DocumentPrompts


@dataclass(frozen=True, kw_only=True)
class CorpusBench:
    """Settings of one run."""

    input: str
    model: str = "summarizer"
    dtype: Dtype = "bf16"
    threads: int = 0
    documents: int = 0
    repeats: int = 3

    @property
    def served_model(self) -> ModelSettings:
        """The model as both contenders run it."""
        engine = EngineSettings(threads=self.threads or usable_cores())
        return ModelSettings(model=self.model, dtype=self.dtype, engine=engine)


def run_corpus_bench(
    bench: CorpusBench, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measure both and return the report; `ratio` is the median over the rounds.

    Raises:
        ClusterError: no cluster can be used.
        ModelError, UsageError: the model or the input cannot be used.
    """
    model = bench.served_model
    engine = Engine.load(bench.model, dtype=bench.dtype, settings=model.engine)
    engine.warm_up()
    workload = load_workload(bench.input, engine.tokenizer, documents=bench.documents)
    seconds: dict[str, list[float]] = {"engine": [], "job": []}
    with _written(workload.texts) as folder, _app(model) as app_name:
        _job_seconds(bench, folder, "warm-up", app_name)
        for round_ in range(bench.repeats):
            seconds["engine"].append(_engine_seconds(engine, workload.texts))
            seconds["job"].append(_job_seconds(bench, folder, f"round-{round_}", app_name))
            progress(
                f"round {round_ + 1}: "
                + ", ".join(f"{k} {v[-1]:.1f} s" for k, v in seconds.items())
            )
    documents = len(workload.texts)
    return {
        "bench": "corpus",
        "circumstances": circumstances(),
        "model": bench.model,
        "dtype": bench.dtype,
        "threads": model.engine.threads,
        "workload": workload.describe(),
        "contenders": [
            {
                "name": name,
                "seconds": taken,
                "seconds_median": median(taken),
                "documents_per_s": documents / median(taken),
            }
            for name, taken in seconds.items()
        ],
        "ratio": median(e / j for e, j in zip(seconds["engine"], seconds["job"], strict=True)),
    }


def _engine_seconds(engine: Engine, texts: tuple[str, ...]) -> float:
    started = time.perf_counter()
    prompts = DocumentPrompts.usual(engine.tokenizer)
    engine.generate([prompts.cut(text) for text in texts], Decoding())
    return time.perf_counter() - started


def _job_seconds(bench: CorpusBench, folder: Path, name: str, app_name: str) -> float:
    """Seconds from the first shard's reading to the last one's commit."""
    settings = CorpusSettings(
        input=str(folder / "documents.parquet"), output=str(folder / name), model=bench.model
    )
    with open_run(settings, Decoding()) as run:
        report = execute(run, lambda session: None, app_name=app_name)
    return float(report["session"]["seconds"])


@contextmanager
def _written(texts: tuple[str, ...]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="raydiff-bench-") as name:
        folder = Path(name)
        pq.write_table(pa.table({"text": list(texts)}), folder / "documents.parquet")
        yield folder


@contextmanager
def _app(model: ModelSettings) -> Iterator[str]:
    with running_app(AppSettings(models=(model,)), ServeSettings(port=0), reuse=False) as app:
        yield app.app_name
