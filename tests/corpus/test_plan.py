"""A shard knows its documents by their index, and where each is in the input."""

from __future__ import annotations

import pytest

from raydiff.corpus.plan import Span, make_shard

SPANS = (Span(file="a", row_start=4, rows=2, stop_group=1), Span(file="b", row_start=0, rows=1))


def test_documents_of_a_shard_of_several_files_have_their_places() -> None:
    shard = make_shard(1, SPANS)
    assert list(shard.places()) == [("a", 4), ("a", 5), ("b", 0)]
    assert [shard.place(index) for index in range(shard.rows)] == list(shard.places())
    with pytest.raises(IndexError):
        shard.place(3)


def test_an_id_says_the_position_and_which_rows_they_are() -> None:
    shard = make_shard(12, SPANS)
    assert shard.position == 12
    assert shard.shard_id.startswith("00000012-")
    assert make_shard(12, SPANS) == shard
    assert make_shard(12, SPANS[:1]).shard_id != shard.shard_id
