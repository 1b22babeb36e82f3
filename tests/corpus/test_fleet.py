"""The driver's eye on the replicas."""

from __future__ import annotations

import threading

import pytest

from raydiff.corpus import fleet as fleet_module
from raydiff.corpus.fleet import Answers, ReplicaWatch, ask, first_answer
from raydiff.errors import ClusterError

REPLICA = {
    "max_rows": 64,
    "max_in_flight": 4160,
    "target_calls": 4.0,
    "max_replicas": 2,
}


class Replicas:
    """Answers one after the other, the last again and again."""

    def __init__(self, *answers: Answers | Exception) -> None:
        self._answers = list(answers)

    async def describe(self, *, timeout_s: float) -> Answers:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "ASK_EVERY_S", 0.01)


def looks(replicas: Replicas, count: int) -> list[int | None]:
    """The number of running replicas at each look."""
    seen: list[int | None] = []
    enough = threading.Event()

    def look(answers: Answers | None) -> None:
        seen.append(None if answers is None else len(answers))
        if len(seen) >= count:
            enough.set()

    with ReplicaWatch(replicas, look, every_s=0.001):
        assert enough.wait(30)
    return seen[:count]


def test_replicas_that_come_and_go_are_seen() -> None:
    assert looks(Replicas([REPLICA], [REPLICA] * 2, [REPLICA]), 4) == [1, 2, 1, 1]


def test_a_replica_that_is_about_to_go_does_not_end_the_watch() -> None:
    assert looks(Replicas([REPLICA], ClusterError("gone"), [REPLICA]), 3) == [1, None, 1]


def test_the_watch_ends_with_its_block() -> None:
    before = threading.active_count()
    looks(Replicas([REPLICA]), 1)
    assert threading.active_count() == before


def test_any_failure_of_the_question_is_no_answer() -> None:
    assert ask(Replicas(RuntimeError("Ray is shut down"))) is None


def test_the_first_answer_is_waited_for() -> None:
    replicas = Replicas(ClusterError("dies"), [REPLICA] * 2)
    assert first_answer(replicas, patience_s=30).running == 2


def test_replicas_that_never_answer_end_the_run() -> None:
    with pytest.raises(ClusterError, match="dies"):
        first_answer(Replicas(ClusterError("dies")), patience_s=0)


def test_replicas_that_do_not_say_what_they_take_are_counted() -> None:
    assert first_answer(Replicas([{"requests": 0}] * 3)).running == 3


def test_a_fleet_scaled_to_zero_is_none_running() -> None:
    assert first_answer(Replicas([])).running == 0
