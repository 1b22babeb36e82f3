"""Samples of a corpus: spread over it, fair, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.bench.sample import draw_sample
from raydiff.config import CorpusSettings
from raydiff.corpus.reading import Rejected
from raydiff.errors import InputError


def write(folder: Path, name: str, rows: int, *, group: int = 1000) -> None:
    texts = [f"{name} {row}" for row in range(rows)]
    table = pa.table({"text": texts, "summary": [f"s {text}" for text in texts]})
    pq.write_table(table, folder / name, row_group_size=group)


def settings(location: Path) -> CorpusSettings:
    return CorpusSettings(input=str(location), output="")


def test_documents_come_with_their_place_and_their_reference(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 500, group=100)
    sample = draw_sample(settings(tmp_path), 50, seed=0, reference_column="summary")
    assert len(sample.documents) == 50
    assert len({(d.file, d.row) for d in sample.documents}) == 50
    for document in sample.documents:
        assert document.text == f"{document.file} {document.row}"
        assert document.reference == f"s {document.text}"


def test_files_give_as_much_as_they_hold(tmp_path: Path) -> None:
    write(tmp_path, "large.parquet", 3000, group=700)
    write(tmp_path, "small.parquet", 1000)
    sample = draw_sample(settings(tmp_path), 400, seed=1)
    share = Counter(d.file for d in sample.documents)
    assert share["small.parquet"] == pytest.approx(100, abs=10)


def test_every_row_is_as_likely_as_any_other(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 130, group=40)
    write(tmp_path, "b.parquet", 70)
    taken: Counter[tuple[str, int]] = Counter()
    for seed in range(300):
        taken.update(
            (d.file, d.row) for d in draw_sample(settings(tmp_path), 20, seed=seed).documents
        )
    assert len(taken) == 200
    for file in ("a.parquet", "b.parquet"):
        rates = [count / 300 for (name, _), count in taken.items() if name == file]
        assert sum(rates) / len(rates) == pytest.approx(0.1, rel=0.1)


def test_a_seed_decides(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 500, group=100)

    def rows(seed: int) -> list[int]:
        return [d.row for d in draw_sample(settings(tmp_path), 20, seed=seed).documents]

    assert rows(1) == rows(1) != rows(2)


def test_a_small_corpus_is_taken_whole(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 7)
    assert [d.row for d in draw_sample(settings(tmp_path), 50, seed=0).documents] == list(range(7))


def test_what_is_no_text_is_kept_as_such(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", None, " "]}), tmp_path / "a.parquet")
    texts = [d.text for d in draw_sample(settings(tmp_path), 3, seed=0).documents]
    assert texts[0] == "a"
    assert all(isinstance(text, Rejected) for text in texts[1:])


def test_an_absent_reference_column_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 7)
    with pytest.raises(InputError, match=r"reference_column: .*'gold'"):
        draw_sample(settings(tmp_path), 3, seed=0, reference_column="gold")


def test_no_documents(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 0)
    with pytest.raises(InputError, match="no documents"):
        draw_sample(settings(tmp_path), 3, seed=0)
