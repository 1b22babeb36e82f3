"""Slow is not stuck: a shard gets on with every answer, and while it waits for its turn."""

from __future__ import annotations

from raydiff.corpus.pulse import Pulse


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def make() -> tuple[Pulse, Clock]:
    clock = Clock()
    return Pulse(clock), clock


def test_a_shard_in_hand_ages_until_it_gets_on() -> None:
    pulse, clock = make()
    with pulse.shard("a"):
        clock.now_s = 5
        assert pulse.ages() == {"a": 5}
        pulse.on("a")
        assert pulse.ages() == {"a": 0}
    assert pulse.ages() == {}


def test_each_answer_is_progress() -> None:
    pulse, clock = make()
    with pulse.shard("a"), pulse.waiting("a"):
        with pulse.call("a"):
            clock.now_s = 5
            assert pulse.ages() == {"a": 5}
        assert pulse.ages() == {"a": 0}


def test_a_shard_that_waits_for_its_turn_gets_on_as_the_worker_does() -> None:
    pulse, clock = make()
    with (
        pulse.shard("first"),
        pulse.shard("second"),
        pulse.waiting("first"),
        pulse.waiting("second"),
        pulse.call("first"),
    ):
        clock.now_s = 5
        pulse.on("first")
        clock.now_s = 7
        assert pulse.ages() == {"first": 2, "second": 2}


def test_progress_of_one_shard_does_not_hide_a_stuck_call_of_another() -> None:
    pulse, clock = make()
    with pulse.shard("stuck"), pulse.waiting("stuck"), pulse.call("stuck"):
        clock.now_s = 50
        with pulse.shard("other"):
            pulse.on("other")
            assert pulse.ages() == {"stuck": 50, "other": 0}
