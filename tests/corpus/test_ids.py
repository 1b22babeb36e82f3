"""Repeated ids are counted exactly, of any type, in memory or through files."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.ids import RepeatedIds, hash_ids


@settings(deadline=None)
@given(
    st.lists(st.lists(st.text(max_size=3) | st.none(), max_size=40), max_size=8), st.integers(1, 50)
)
def test_the_count_is_exact_however_little_fits_in_memory(
    batches: list[list[str | None]], in_memory: int
) -> None:
    counts = Counter(value for batch in batches for value in batch if value is not None)
    with RepeatedIds(in_memory) as repeated:
        for batch in batches:
            repeated.add(hash_ids(pa.array(batch, pa.string())))
        assert repeated.count() == sum(counts.values()) - len(counts)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([-1, -2, -1, None]),
        pa.array([2**64 - 1, 0, 2**64 - 1], pa.uint64()),
        pa.array([1.5, -1.0, 1.5]),
        pa.array([b"a", b"b", b"a"]),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([uuid.UUID(int=n).bytes for n in (1, 2, 1)], pa.binary(16)),
        pa.array([{"a": -1}, {"a": -2}, {"a": -1}]),
        pa.array([[1], [2], [1]]),
        pa.array([True, False, True]),
    ],
    ids=lambda values: str(values.type),
)
def test_ids_of_any_type_are_counted(values: Any) -> None:
    with RepeatedIds() as repeated:
        repeated.add(hash_ids(values))
        assert repeated.count() == 1


def test_ids_of_all_nulls_do_not_repeat() -> None:
    assert hash_ids(pa.nulls(3)).size == 0


def test_what_is_spilled_is_gone_afterwards(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with RepeatedIds(10) as repeated:
        for _ in range(3):
            repeated.add(np.arange(10, dtype=np.int64))
        assert list(tmp_path.iterdir())
        assert repeated.count() == 20
    assert not list(tmp_path.iterdir())
