"""Columns are chosen by name, and may not hide one of the output's."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydiff.config import StorageSettings
from raydiff.corpus.inputs import Wanted, open_location
from raydiff.errors import InputError

from ..conftest import WriteCorpus
from .conftest import OpenInputs


def test_ids_come_from_doc_id_then_id_then_nowhere(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    found = {
        name: opened(write_corpus(tmp_path / f"{name}.parquet", ["x"], id_name=name)).columns.id
        for name in ("doc_id", "id", "key")
    }
    assert found == {"doc_id": "doc_id", "id": "id", "key": None}


@pytest.mark.parametrize("name", ["summary", "source_row", "error_type"])
def test_a_passed_column_may_not_hide_an_output_column(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs, name: str
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["one"], **{name: ["x"]})
    with pytest.raises(InputError, match=f"pass_columns.*{name}"):
        opened(path, pass_columns=(name,))


def test_a_reader_without_output_may_carry_any_column(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["one"], summary=["x"])
    wanted = Wanted(text="text", passed=("summary",))
    inputs = open_location(str(path), StorageSettings(), wanted)
    assert inputs.layout.carried.names == ["doc_id", "summary"]


def test_a_column_is_passed_once(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    path = write_corpus(tmp_path / "a.parquet", ["one"])
    with pytest.raises(InputError, match="pass_columns"):
        opened(path, pass_columns=("doc_id",))
