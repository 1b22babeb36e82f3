"""A run directory in a bucket lives as one on a disk does: resumed, appended to, compacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.config import CorpusSettings
from raydiff.corpus.closing import close
from raydiff.corpus.compacting import compact
from raydiff.corpus.directory import RunDirectory, open_run
from raydiff.corpus.report import Session
from raydiff.corpus.runs import SavedRun
from raydiff.corpus.showing import show
from raydiff.corpus.verifying import verify
from raydiff.errors import RunConflict
from raydiff.request import Decoding
from raydiff.storage import Folder

from ..corpus.committing import commit_all
from ..corpus.conftest import make_toy_model
from .conftest import MakeFolder


@pytest.fixture
def model(tmp_path: Path) -> str:
    return make_toy_model(tmp_path / "toy", 66)


def put_corpus(folder: Folder, name: str, rows: int) -> None:
    texts = [f"{name} {row}" for row in range(rows)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"doc_id": [f"{name}-{r}" for r in range(rows)], "text": texts}), sink)
    folder.put(name, sink.getvalue())


def rows_of(run: RunDirectory) -> list[tuple[Any, Any]]:
    tables = [
        pq.read_table(pa.BufferReader(run.folder.read(name)))
        for under in ("", "errors")
        for name in run.folder.names(under)
        if name.startswith(("part-", "errors/"))
    ]
    return sorted((row["source_file"], row["source_row"]) for t in tables for row in t.to_pylist())


def test_a_run_in_a_bucket_is_resumed_appended_to_compacted_and_verified(
    make_folder: MakeFolder, model: str
) -> None:
    source, output = make_folder(under="life/in/"), make_folder(under="life/out/")
    put_corpus(source, "b.parquet", 10)
    settings = CorpusSettings(
        input=source.uri, output=output.uri, model=model, shard_rows=2, storage=output.storage
    )
    with open_run(settings, Decoding()) as run:
        commit_all(run, run.pending[:3], failed=1)
        with pytest.raises(RunConflict, match="is writing to"):
            compact(SavedRun.load(output.uri, output.storage), 2**20)
    saved = SavedRun.load(output.uri, output.storage)
    assert (show(saved)["status"], show(saved)["done"]) == ("stopped", 6)
    compact(saved, 2**20)

    put_corpus(source, "a.parquet", 3)
    with (
        pytest.raises(RunConflict, match=r"files added: a\.parquet"),
        open_run(settings, Decoding()),
    ):
        pass
    with open_run(settings.model_copy(update={"append": True}), Decoding()) as run:
        assert [shard.position for shard in run.pending] == [3, 4, 5, 6]
        commit_all(run, failed=1, lost=True)
        report = close(run, Session())
    assert (report["rows"], report["output_tokens"], len(report["appends"])) == (13, 28, 1)

    saved = SavedRun.load(output.uri, output.storage)
    result = compact(saved, 2**20)
    assert (result.parts_after, result.complete) == (1, True)
    assert verify(saved).faults == ()
    assert show(saved)["status"] == "done"
    expected = [("a.parquet", r) for r in range(3)] + [("b.parquet", r) for r in range(10)]
    assert rows_of(run) == expected
