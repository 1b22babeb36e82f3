"""The index of results that the shards of a run share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from raydiff.corpus.dedupe import NothingShared, ResultIndex

LEASE_S = 10.0


class Clock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def index(clock: Clock) -> Iterator[ResultIndex]:
    index = ResultIndex(lease_s=LEASE_S, clock=clock)
    yield index
    index.close()


def test_a_content_is_generated_by_the_first_who_asks(index: ResultIndex) -> None:
    assert index.claim("a", [b"1", b"2"]) == ["yours", "yours"]
    assert index.claim("b", [b"2", b"3"]) == ["taken", "yours"]
    index.settle("a", {b"1": b"one", b"2": b"two"}, [])
    assert index.claim("b", [b"2", b"3", b"1"]) == [b"two", "yours", b"one"]


def test_a_failed_content_is_free_for_the_next(index: ResultIndex) -> None:
    index.claim("a", [b"1"])
    index.settle("a", {}, [b"1"])
    assert index.claim("b", [b"1"]) == ["yours"]


def test_a_shard_that_is_tried_again_has_what_it_claimed_before(index: ResultIndex) -> None:
    index.claim("a", [b"1"])
    assert index.claim("a", [b"1"]) == ["yours"]


def test_claims_of_one_who_is_not_heard_of_are_taken_over(index: ResultIndex, clock: Clock) -> None:
    index.claim("a", [b"1"])
    clock.now_s = LEASE_S - 1
    assert index.claim("b", [b"1"]) == ["taken"]
    index.renew("a")
    clock.now_s += LEASE_S - 1
    assert index.claim("b", [b"1"]) == ["taken"]
    clock.now_s += 1
    assert index.claim("b", [b"1"]) == ["yours"]
    assert index.claim("a", [b"1"]) == ["taken"]


def test_a_late_result_of_the_first_is_as_good(index: ResultIndex, clock: Clock) -> None:
    index.claim("a", [b"1"])
    clock.now_s = LEASE_S
    index.claim("b", [b"1"])
    index.settle("a", {b"1": b"one"}, [])
    assert index.claim("b", [b"1"]) == [b"one"]
    index.settle("b", {b"1": b"one"}, [])
    assert index.claim("c", [b"1"]) == [b"one"]


def test_a_late_failure_of_the_first_takes_nothing_from_the_second(
    index: ResultIndex, clock: Clock
) -> None:
    index.claim("a", [b"1"])
    clock.now_s = LEASE_S
    index.claim("b", [b"1"])
    index.settle("a", {}, [b"1"])
    assert index.claim("c", [b"1"]) == ["taken"]


def test_the_claims_of_a_dead_one_can_be_freed_at_once(index: ResultIndex) -> None:
    index.claim("a", [b"1", b"2"])
    index.forget("a")
    index.forget("a")
    assert index.claim("b", [b"1", b"2"]) == ["yours", "yours"]


def test_a_full_disk_costs_no_more_than_generating_again(
    index: ResultIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        """A database whose disk is full."""

        def __init__(self, database: sqlite3.Connection) -> None:
            self._database = database
            self.execute = database.execute
            self.close = database.close

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def executemany(self, *_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    index.claim("a", [b"0"])
    index.settle("a", {b"0": b"zero"}, [])
    monkeypatch.setattr(index, "_database", Full(index._database))
    index.claim("a", [b"1"])
    index.settle("a", {b"1": b"one"}, [])
    assert index.claim("b", [b"0", b"1"]) == [b"zero", "yours"]


def test_memory_does_not_grow_with_what_was_settled(index: ResultIndex) -> None:
    for shard in range(200):
        keys = [f"{shard}/{n}".encode() for n in range(50)]
        index.claim(f"{shard}", keys)
        index.settle(f"{shard}", dict.fromkeys(keys, b"x" * 100), [])
    assert (index._claims, index._owners) == ({}, {})
    assert index.size_bytes > 10_000 * 100


async def test_where_nothing_is_shared_everyone_generates_all() -> None:
    shared = NothingShared()
    assert await shared.claim("a", [b"1", b"2"]) == ["yours", "yours"]
    await shared.settle("a", {b"1": b"one"}, [])
    assert await shared.claim("b", [b"1"]) == ["yours"]


OWNERS, KEYS = st.sampled_from("abc"), st.sampled_from([b"1", b"2", b"3"])


class Sharing(RuleBasedStateMachine):
    """Owners claim, settle, fail, die and fall silent in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.index = ResultIndex(lease_s=LEASE_S, clock=self.clock)
        self.claims: dict[bytes, str] = {}
        self.results: dict[bytes, bytes] = {}
        self.heard: dict[str, float] = dict.fromkeys("abc", 0.0)

    def teardown(self) -> None:
        self.index.close()

    @rule(owner=OWNERS, key=KEYS)
    def claim(self, owner: str, key: bytes) -> None:
        (answer,) = self.index.claim(owner, [key])
        self.heard[owner] = self.clock.now_s
        holder = self.claims.get(key, owner)
        if key in self.results:
            assert answer == self.results[key]
        elif holder != owner and self.clock.now_s - self.heard[holder] < LEASE_S:
            assert answer == "taken"
        else:
            assert answer == "yours"
            self.claims[key] = owner

    @rule(owner=OWNERS, key=KEYS)
    def finish(self, owner: str, key: bytes) -> None:
        if self.claims.get(key) == owner:
            self.index.settle(owner, {key: key * 2}, [])
            self.heard[owner] = self.clock.now_s
            self.results[key] = key * 2
            del self.claims[key]

    @rule(owner=OWNERS, key=KEYS)
    def give_up(self, owner: str, key: bytes) -> None:
        if self.claims.get(key) == owner:
            self.index.settle(owner, {}, [key])
            self.heard[owner] = self.clock.now_s
            del self.claims[key]

    @rule(owner=OWNERS)
    def die(self, owner: str) -> None:
        self.index.forget(owner)
        self.claims = {key: name for key, name in self.claims.items() if name != owner}

    @rule(seconds=st.sampled_from([1.0, LEASE_S]))
    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    @invariant()
    def only_claims_are_held(self) -> None:
        assert self.index._claims == self.claims


Sharing.TestCase.settings = settings(deadline=None, max_examples=50, stateful_step_count=30)
TestSharing = Sharing.TestCase
