"""The timeline accounts for every document and leaves pauses out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydiff.corpus.timeline import Timeline, timeline

shards = st.lists(
    st.tuples(
        st.floats(1e9, 1e9 + 1e6), st.floats(0.0, 500.0), st.integers(0, 300), st.integers(0, 9000)
    ),
    min_size=1,
    max_size=40,
)


@given(shards, st.integers(1, 50))
def test_nothing_is_lost_or_counted_twice(
    runs: list[tuple[float, float, int, int]], bins: int
) -> None:
    starts, spans, documents, tokens = zip(*runs, strict=True)
    ends = [start + span for start, span in zip(starts, spans, strict=True)]
    found = timeline(starts, ends, documents, tokens, bins)
    if found is None:
        assert max(ends) <= min(starts)
        return
    assert (len(found.documents), sum(found.documents)) == (bins, sum(documents))
    assert sum(found.output_tokens) == sum(tokens)
    assert min(found.documents) >= 0
    assert min(found.output_tokens) >= 0


def test_a_steady_run_is_a_level_line() -> None:
    starts = [float(i) for i in range(100)]
    ends = [start + 1.0 for start in starts]
    found = timeline(starts, ends, [10] * 100, [70] * 100, bins=10)
    assert found is not None
    assert found.interval_s == pytest.approx(10.0)
    assert found.documents_per_s == pytest.approx([10.0] * 10)
    assert found.tokens_per_s == pytest.approx([70.0] * 10)


def test_a_night_between_two_starts_is_left_out() -> None:
    starts = [*(float(i) for i in range(50)), *(40_000.0 + i for i in range(50))]
    ends = [start + 1.0 for start in starts]
    found = timeline(starts, ends, [10] * 100, [10] * 100, bins=10)
    assert found is not None
    assert found.interval_s == pytest.approx(10.0)
    assert min(found.documents) == max(found.documents) == 100


def test_an_hour_over_one_shard_is_work() -> None:
    found = timeline([0.0, 1.0], [1.0, 3601.0], [5, 5], [5, 5], bins=2)
    assert found is not None
    assert found.interval_s == pytest.approx(1800.5)


def test_it_goes_through_json() -> None:
    found = timeline([0.0], [10.0], [5], [50], bins=4)
    assert found is not None
    assert Timeline.from_dict(found.to_dict()) == found


def test_no_shards_have_no_timeline() -> None:
    assert timeline([], [], [], []) is None
