"""Parquet splits round-trip, and the committed sample keeps its promises."""

from pathlib import Path

from raydiff.train.corpus import SAMPLE_ROWS, evenly, read_split, write_pairs
from raydiff.train.debian import Pair, split_of

SAMPLE = Path(__file__).parents[2] / "jobs" / "sample.parquet"


def test_pairs_survive_a_round_trip(tmp_path: Path) -> None:
    pairs = [Pair("a", "text\nwith lines", "synopsis"), Pair("b", "ünï", "ço")]
    write_pairs(tmp_path / "new" / "split.parquet", pairs)
    assert read_split(tmp_path / "new" / "split.parquet") == pairs


def test_a_sample_is_evenly_spaced_and_stable() -> None:
    pairs = [Pair(str(index), "text", "summary") for index in range(10)]
    assert [pair.doc_id for pair in evenly(pairs, 5)] == ["0", "2", "4", "6", "8"]
    assert evenly(pairs, 20) == pairs


def test_the_committed_sample_holds_500_distinct_documents_of_the_test_split_only() -> None:
    pairs = read_split(SAMPLE)
    assert len(pairs) == SAMPLE_ROWS
    assert len({pair.doc_id for pair in pairs}) == SAMPLE_ROWS
    assert len({(pair.text, pair.summary) for pair in pairs}) == SAMPLE_ROWS
    assert {split_of(pair.text) for pair in pairs} == {"test"}
