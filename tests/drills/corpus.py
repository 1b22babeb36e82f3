"""Corpora of the drills: documents of the package's sample, and some that break something."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SAMPLE = Path(__file__).parents[2] / "jobs" / "sample.parquet"
KILLS_REPLICA = "this document kills its replica"
KILLS_WORKER = "this document kills its worker"
BREAKS_TOKENIZER = "this document breaks the tokenizer"
ERROR_TYPES = {
    KILLS_REPLICA: "ReplicaDied",
    KILLS_WORKER: "WorkerDied",
    BREAKS_TOKENIZER: "TokenizerError",
}


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """An input file and what must become of each of its rows."""

    path: Path
    texts: tuple[str, ...]
    culprits: dict[int, str] = field(default_factory=dict)
    """Rows that break something, with the type of error they end as."""


def sample_texts() -> list[str]:
    """All documents to draw from, each different."""
    texts = pq.read_table(SAMPLE, columns=["text"]).column("text").to_pylist()
    return list(dict.fromkeys(str(text)[:600] for text in texts))


def draw_corpus(
    path: Path, rng: random.Random, texts: Sequence[str], rows: int, culprits: Sequence[str] = ()
) -> Corpus:
    """Write a corpus of random documents with culprits at random places."""
    chosen = rng.sample(list(texts), rows)
    places = rng.sample(range(rows), len(culprits))
    for place, kind in zip(places, culprits, strict=True):
        chosen[place] = f"{chosen[place][:80]} {kind} {place}"
    ids = [f"doc-{row}" for row in range(rows)]
    pq.write_table(pa.table({"doc_id": ids, "text": chosen}), path)
    errors = {place: ERROR_TYPES[kind] for place, kind in zip(places, culprits, strict=True)}
    return Corpus(path=path, texts=tuple(chosen), culprits=errors)
