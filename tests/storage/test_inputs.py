"""An input in a bucket is found, planned and read like one on a disk, bad days included."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.config import CorpusSettings, StorageSettings
from raydiff.corpus.cutting import plan_items
from raydiff.corpus.inputs import open_inputs
from raydiff.corpus.plan import FileFacts, Shard
from raydiff.corpus.reading import SpanReader
from raydiff.storage.s3 import S3Folder

from .conftest import MakeFolder
from .proxy import FaultProxy


def write(root: Path) -> None:
    for day in (1, 2):
        (root / f"day={day}").mkdir()
        table = pa.table({"id": range(500), "text": [f"{day}-{i}" for i in range(500)]})
        pq.write_table(table, root / f"day={day}" / "a.parquet", row_group_size=120)
    (root / "lines").mkdir()
    lines = b"".join(b'{"id": %d, "text": "line %d"}\n' % (i, i) for i in range(300))
    (root / "lines" / "a.jsonl").write_bytes(lines)
    with pa.CompressedOutputStream(str(root / "lines" / "b.jsonl.gz"), "gzip") as sink:
        sink.write(lines)


def upload(root: Path, folder: S3Folder) -> None:
    for path in root.rglob("*.*"):
        if path.is_file():
            folder.put(str(path.relative_to(root)), path.read_bytes())


def read(location: str, storage: StorageSettings) -> tuple[list[FileFacts], list[object]]:
    """Facts without versions, which stores make, and everything that is read."""
    settings = CorpusSettings(
        input=location,
        output="unused",
        storage=storage,
        pass_columns=("day",) if "day" in location else (),
    )
    inputs = open_inputs(settings)
    reader = SpanReader(inputs.folder, inputs.layout)
    facts: list[FileFacts] = []
    rows: list[object] = []
    for item in plan_items(inputs, inputs.listing, 100):
        if isinstance(item, Shard):
            for span in item.spans:
                found = reader.read(span)
                rows += [(item.shard_id, found.texts, found.carried.to_pylist())]
        else:
            facts.append(item)
    return facts, rows


def names(facts: list[FileFacts]) -> list[tuple[str, int, int, str]]:
    return [(f.name, f.size_bytes, f.rows, f.digest) for f in facts]


def test_a_bucket_gives_what_a_disk_gives(
    tmp_path: Path, make_folder: MakeFolder, proxy: FaultProxy
) -> None:
    write(tmp_path)
    folder = make_folder(under="corpus/")
    upload(tmp_path, folder)
    proxy.slow_down = 0.1
    for under in ("day=*", "day=2", "day=2/a.parquet", "lines", "lines/a.jsonl", "**/b.*"):
        here = read(f"{tmp_path}/{under}", StorageSettings())
        there = read(f"{folder.uri}/{under}", folder.storage)
        assert names(there[0]) == names(here[0])
        assert there[1] == here[1]
        assert there[1]
