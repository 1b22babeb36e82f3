"""One column of a file can be had without its documents, in every format."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.corpus.inputs import Inputs
from raydiff.corpus.reading import iter_column
from raydiff.corpus.reading.column import _BATCH

from ..conftest import WriteCorpus
from ..spoiling import spoil_pages
from .conftest import opened


def values(inputs: Inputs, column: str) -> list[object]:
    (entry,) = inputs.listing
    found = iter_column(inputs.folder, inputs.layout, entry.name, column)
    return [value for chunk in found for value in chunk.to_pylist()]


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.csv"])
def test_ids_come_in_order_over_many_batches(tmp_path: Path, name: str) -> None:
    rows = 2 * _BATCH + 3
    if name == "a.parquet":
        table = pa.table({"id": [str(i) for i in range(rows)], "text": ["x"] * rows})
        pq.write_table(table, tmp_path / name, row_group_size=_BATCH)
    elif name == "a.jsonl":
        lines = [f'{{"id": "{i}", "text": "x"}}\n' for i in range(rows)]
        (tmp_path / name).write_text("".join(lines))
    else:
        (tmp_path / name).write_text("text,id\n" + "".join(f"x,{i}\n" for i in range(rows)))
    assert values(opened(tmp_path), "id") == [str(i) for i in range(rows)]


def test_documents_that_cannot_be_decoded_do_not_matter(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["x"] * 3)
    inputs = opened(path)
    spoil_pages(path)
    assert values(inputs, "doc_id") == ["a-0", "a-1", "a-2"]


def test_ids_that_cannot_be_read_are_null(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "text": "x"}\n{"id": \n{"text": "y"}\n')
    assert values(opened(tmp_path), "id") == [1, None, None]


def test_a_column_of_directories_has_its_value_once(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    write_corpus(tmp_path / "site=a" / "x.parquet", ["one", "two"])
    assert values(opened(tmp_path, id_column="site"), "site") == ["a"]
