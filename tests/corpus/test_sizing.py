"""How much work is kept in flight."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydiff.config import CorpusSettings, EngineSettings
from raydiff.corpus.sizing import (
    MAX_CALLS,
    CallTimes,
    Fleet,
    Sizer,
    first_calls,
    least_calls,
    most_calls,
    shards_in_hand,
    size_pool,
)
from raydiff.request import Completion, Usage

FLEET = Fleet(running=2, most=2, max_rows=64, max_in_flight=4160, target_calls=4.0)
PER_CALL = 16
SETTINGS = CorpusSettings(input="in", output="out")


def described(**fields: object) -> dict[str, object]:
    usual = {"max_rows": 64, "max_in_flight": 4160, "target_calls": 4.0, "max_replicas": 1}
    return {**usual, **fields}


def completion(queue_s: float, total_s: float, forwards: int = 4) -> Completion:
    usage = Usage(prompt_tokens=1, completion_tokens=1, forwards=forwards)
    return Completion(
        request_id="r",
        text="",
        token_ids=(),
        finish_reason="stop",
        usage=usage,
        queue_s=queue_s,
        total_s=total_s,
    )


def settle(sizer: Sizer, times: CallTimes, rounds: int = 40) -> int:
    for _ in range(rounds * MAX_CALLS):
        sizer.observe(times)
    return sizer.calls


def test_it_starts_with_a_batch_at_work_and_one_waiting_at_each_replica() -> None:
    assert first_calls(FLEET, PER_CALL) == 2 * 2 * 64 // 16
    sizer = Sizer(PER_CALL)
    sizer.follow(FLEET, workers=2)
    assert sizer.calls == 8


def test_before_the_replicas_are_known_one_call_is_in_flight() -> None:
    assert Sizer(PER_CALL).calls == 1


def test_replicas_that_run_dry_get_more() -> None:
    sizer = Sizer(PER_CALL)
    sizer.follow(FLEET, workers=1)
    before = sizer.calls
    for _ in range(before):
        sizer.observe(CallTimes(call_s=1.0, waited_s=0.0, held_s=0.5))
    assert sizer.calls == before * 1.5


def test_a_queue_longer_than_a_batch_gets_less() -> None:
    sizer = Sizer(PER_CALL)
    sizer.follow(FLEET, workers=1)
    assert settle(sizer, CallTimes(call_s=10.0, waited_s=9.0, held_s=0.5)) < 16


def test_a_batch_that_waits_is_left_alone() -> None:
    sizer = Sizer(PER_CALL)
    sizer.follow(FLEET, workers=1)
    before = sizer.calls
    assert settle(sizer, CallTimes(call_s=2.0, waited_s=0.9, held_s=1.0)) == before


def test_seconds_in_transit_are_made_up_for() -> None:
    """An answer that takes long to come back leaves the replica without its successor."""
    slow = Sizer(PER_CALL)
    slow.follow(FLEET, workers=1)
    for _ in range(slow.calls):
        slow.observe(CallTimes(call_s=3.0, waited_s=0.0, held_s=1.0))
    near = Sizer(PER_CALL)
    near.follow(FLEET, workers=1)
    for _ in range(near.calls):
        near.observe(CallTimes(call_s=2.0, waited_s=0.95, held_s=1.0))
    assert slow.calls > near.calls


@pytest.mark.parametrize("capacity", [3.0, 11.0, 40.0])
def test_it_settles_where_one_batch_waits(capacity: float) -> None:
    """A model of replicas that do `capacity` calls a second, each of 1 s of work."""
    work_s, held_s = 1.0, 0.8
    sizer = Sizer(PER_CALL)
    sizer.follow(replace(FLEET, running=1, most=1, max_rows=16), workers=1)
    for _ in range(60):
        calls = sizer.calls
        call_s = max(work_s, calls / capacity)
        for _ in range(calls):
            sizer.observe(CallTimes(call_s=call_s, waited_s=call_s - work_s, held_s=held_s))
    assert sizer.calls == pytest.approx(capacity * (work_s + held_s), rel=0.2)


def test_it_never_passes_what_bounded_queues_take() -> None:
    fleet = replace(FLEET, max_in_flight=256)
    sizer = Sizer(PER_CALL)
    sizer.follow(fleet, workers=1)
    calls = settle(sizer, CallTimes(call_s=1.0, waited_s=0.0, held_s=1.0))
    assert calls == most_calls(fleet, PER_CALL) == 2 * 256 // 2 // 16


def test_it_never_leaves_rows_empty() -> None:
    sizer = Sizer(PER_CALL)
    sizer.follow(FLEET, workers=1)
    calls = settle(sizer, CallTimes(call_s=10.0, waited_s=10.0, held_s=0.1))
    assert calls == least_calls(FLEET, PER_CALL) == 2 * 64 // 16


def test_added_and_lost_replicas_count_at_once() -> None:
    sizer = Sizer(PER_CALL)
    sizer.follow(FLEET, workers=1)
    for running in (4, 1, 3):
        sizer.follow(replace(FLEET, running=running, most=running), workers=1)
        assert sizer.calls == running * 2 * 64 // 16


def test_workers_share_the_replicas() -> None:
    one, four = Sizer(PER_CALL), Sizer(PER_CALL)
    one.follow(FLEET, workers=1)
    four.follow(FLEET, workers=4)
    assert one.calls == 4 * four.calls
    four.follow(FLEET, workers=1)
    assert four.calls == one.calls


@pytest.mark.parametrize("documents_per_call", [4, 16, 64, 256])
def test_the_load_asks_autoscaling_for_more_replicas(documents_per_call: int) -> None:
    """Serve wants as many replicas as calls in flight over its target."""
    for running in (1, 2, 5):
        fleet = replace(FLEET, running=running, most=8)
        assert least_calls(fleet, documents_per_call) / fleet.target_calls > running
    full = replace(FLEET, running=8, most=8)
    assert least_calls(full, PER_CALL) == 8 * 4


def test_a_fleet_scaled_to_zero_is_woken() -> None:
    sizer = Sizer(PER_CALL)
    sizer.follow(replace(FLEET, running=0, most=4), workers=1)
    assert sizer.calls >= 1
    sizer.follow(replace(FLEET, running=1, most=4), workers=1)
    assert sizer.calls >= 8


def test_a_fixed_number_of_calls_stays() -> None:
    sizer = Sizer(PER_CALL, fixed=3)
    sizer.follow(FLEET, workers=1)
    assert settle(sizer, CallTimes(call_s=1.0, waited_s=0.0, held_s=1.0)) == 3


@given(
    running=st.integers(0, 100),
    more=st.integers(0, 100),
    max_rows=st.integers(1, 4096),
    queued=st.integers(1, 5000),
    per_call=st.integers(1, 256),
    workers=st.integers(1, 30),
    times=st.tuples(st.floats(0.0, 1e3), st.floats(0.0, 1e3), st.floats(0.0, 1e3)),
)
def test_whatever_is_measured_at_least_one_call_is_in_flight_and_never_too_many(
    running: int,
    more: int,
    max_rows: int,
    queued: int,
    per_call: int,
    workers: int,
    times: tuple[float, float, float],
) -> None:
    fleet = Fleet(
        running=running,
        most=running + more,
        max_rows=max_rows,
        max_in_flight=max_rows + queued,
        target_calls=max(1.0, max_rows / per_call),
    )
    sizer = Sizer(per_call)
    sizer.follow(fleet, workers)
    for _ in range(200):
        sizer.observe(CallTimes(call_s=times[0], waited_s=min(times[:2]), held_s=times[2]))
    assert 1 <= sizer.calls <= max(1, min(MAX_CALLS, most_calls(fleet, per_call)))


def test_a_fleet_is_what_its_replicas_say() -> None:
    fleet = Fleet.of([described(), described(max_rows=32, max_replicas=4)])
    assert fleet == Fleet(running=2, most=4, max_rows=32, max_in_flight=4160, target_calls=4.0)


def test_replicas_that_say_nothing_make_no_fleet() -> None:
    assert Fleet.of([]) is None
    assert Fleet.of([{"requests": 0}]) is None


def test_replicas_that_say_nothing_are_taken_to_be_usual() -> None:
    usual = Fleet.usual(3)
    assert (usual.running, usual.most, usual.max_rows) == (3, 3, EngineSettings().max_rows)
    assert first_calls(usual, PER_CALL) == 24


def test_times_of_a_call_are_those_of_its_documents() -> None:
    times = CallTimes.of([completion(0.5, 1.5), completion(0.7, 2.7)], call_s=3.0)
    assert times == CallTimes(call_s=3.0, waited_s=0.5, held_s=1.5)


def test_a_call_without_a_begun_document_tells_nothing() -> None:
    assert CallTimes.of([completion(0.0, 0.0, forwards=0)], call_s=1.0) is None


@pytest.mark.parametrize(
    ("running", "most", "tasks", "pool"),
    [
        (1, 1, 100, (1, 1)),
        (2, 40, 100, (1, 10)),
        (40, 40, 100, (10, 10)),
        (40, 40, 3, (3, 3)),
        (0, 4, 100, (1, 1)),
    ],
)
def test_workers_follow_the_replicas_that_run_and_that_may_come(
    running: int, most: int, tasks: int, pool: tuple[int, int]
) -> None:
    fleet = replace(FLEET, running=running, most=most)
    found = size_pool(SETTINGS, fleet, tasks=tasks, rows_per_shard=256)
    assert (found.least, found.most) == pool


def test_numbers_in_the_settings_have_their_way() -> None:
    settings = SETTINGS.model_copy(update={"workers": 3, "shards_in_flight": 1})
    pool = size_pool(settings, FLEET, tasks=100, rows_per_shard=256)
    assert (pool.least, pool.most, pool.shards) == (3, 3, 1)


def test_no_more_workers_than_tasks() -> None:
    settings = SETTINGS.model_copy(update={"workers": 3})
    assert size_pool(settings, FLEET, tasks=2, rows_per_shard=256).most == 2


def test_small_shards_are_in_hand_by_the_dozen_and_large_ones_by_threes() -> None:
    assert shards_in_hand(8, PER_CALL, rows_per_shard=16) == 18
    assert shards_in_hand(8, PER_CALL, rows_per_shard=10_000) == 3
    assert shards_in_hand(1000, PER_CALL, rows_per_shard=1) == 32
