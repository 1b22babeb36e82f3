"""A small corpus file for benchmarks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

TEXTS = [
    "Write data with a library " * 4,
    "A small library to read files.",
    "Tools for the web, with many files of data: read and write them.",
    "x",
    "many tools",
]
SUMMARIES = ["data library", "file reader", "web tools", "letter", "tools"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Five documents with summaries, not sorted by length."""
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table({"text": TEXTS, "summary": SUMMARIES}), path)
    return path
