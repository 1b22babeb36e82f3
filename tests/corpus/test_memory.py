"""Peak memory of planning and of reading does not depend on the size of the corpus.

Each figure is the peak resident memory of a process of its own, interpreter and libraries
included.
"""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from . import memory

ROOT = Path(__file__).parents[2]
TIMES = 10
TOLERANCE = 1.1


def peak_bytes(task: str, corpus: Path, rows: int) -> int:
    """Peak memory of a process that plans or reads a corpus."""
    command = [sys.executable, "-m", memory.__name__, task, str(corpus)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found, peak = map(int, done.stdout.split())
    assert found == rows
    return peak


def texts(rows: int, size: int) -> pa.Array:
    """Strings that do not compress, of one size."""
    content = random.Random(0).randbytes(rows * size // 2).hex()
    return pa.array([content[i : i + size] for i in range(0, rows * size, size)])


def write_small_files(path: Path, times: int) -> int:
    table = pa.table({"id": range(100), "text": texts(100, 500)})
    for index in range(50 * times):
        pq.write_table(table, path / f"{index:05}.parquet")
    return 100 * 50 * times


def write_row_groups(path: Path, times: int) -> int:
    _write_in_groups(path, times, group_rows=2000)
    return 10_000 * times


def write_one_row_group(path: Path, times: int) -> int:
    _write_in_groups(path, times, group_rows=10_000 * times)
    return 10_000 * times


def _write_in_groups(path: Path, times: int, group_rows: int) -> None:
    table = pa.table({"id": range(10_000), "text": texts(10_000, 2000)})
    pq.write_table(pa.concat_tables([table] * times), path / "a.parquet", row_group_size=group_rows)


def write_json_lines(path: Path, times: int) -> int:
    lines = "".join(f'{{"id": 1, "text": "{text}"}}\n' for text in texts(2000, 2000))
    with gzip.open(path / "a.jsonl.gz", "wt", compresslevel=1) as stream:
        for _ in range(times):
            stream.write(lines)
    return 2000 * times


def write_csv(path: Path, times: int) -> int:
    lines = "".join(f'1,"{text}\n."\n' for text in texts(2000, 2000))
    with (path / "a.csv").open("w") as stream:
        stream.write("id,text\n")
        for _ in range(times):
            stream.write(lines)
    return 2000 * times


@pytest.mark.parametrize("task", ["plan", "read"])
@pytest.mark.parametrize(
    "write",
    [write_small_files, write_row_groups, write_one_row_group, write_json_lines, write_csv],
)
def test_ten_times_the_rows_take_the_same_memory(
    tmp_path: Path, write: Callable[[Path, int], int], task: str
) -> None:
    peaks = []
    for times in (1, TIMES):
        corpus = tmp_path / str(times)
        corpus.mkdir()
        peaks.append(peak_bytes(task, corpus, write(corpus, times)))
    assert peaks[1] < TOLERANCE * peaks[0], [f"{peak / 2**20:.0f} MiB" for peak in peaks]
