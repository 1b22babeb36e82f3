"""What is advised."""

from __future__ import annotations

import pytest

from raydiff.bench.capacity.advice import advise_replicas, advise_shard_rows


def test_replicas_meet_the_deadline_even_at_the_high_end() -> None:
    assert advise_replicas(95.0, within_hours=10) == 10
    assert advise_replicas(0.5, within_hours=10) == 1


@pytest.mark.parametrize(
    ("documents", "documents_per_s", "replicas", "rows", "why"),
    [
        (10_000_000, 20.0, 8, 512, "30 s"),  # 600 documents are 30 s
        (500, 20.0, 1, 32, "8 shards"),  # few documents: enough shards to share
        (1_000_000_000, 20.0, 8, 1024, "1,000,000 shards"),
        (10_000, 0.1, 4, 16, "30 s"),  # slow models still commit several at a time
        (10**9, 10_000.0, 2, 65_536, "30 s"),
    ],
)
def test_shards_are_neither_too_large_nor_too_many(
    documents: int, documents_per_s: float, replicas: int, rows: int, why: str
) -> None:
    found, reason = advise_shard_rows(documents, documents_per_s, replicas)
    assert found == rows
    assert why in reason
