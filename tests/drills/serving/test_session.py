"""The judge of the drills finds what callers must never see."""

from __future__ import annotations

import pytest

from .faults import FAULTS, Fault
from .load import Call
from .session import judge

KILL = next(fault for fault in FAULTS if fault.name == "gateway-kill")
UPDATE = next(fault for fault in FAULTS if fault.name == "model-update")
STRUCK_S = 10.0


def call(outcome: str, patient: bool = True, stream: bool = False, ended_s: float = 12.0) -> Call:
    return Call(patient=patient, stream=stream, outcome=outcome, began_s=9.0, seconds=ended_s - 9.0)


AFTER = Call(patient=True, stream=False, outcome="ok", began_s=11.0, seconds=1.0)


def faults(fault: Fault, *calls: Call) -> list[str]:
    return judge(fault, [*calls, AFTER], STRUCK_S)


@pytest.mark.parametrize("outcome", ["wrong", "silent"])
def test_a_wrong_text_or_a_stream_that_just_ends_is_always_a_fault(outcome: str) -> None:
    assert faults(KILL, call(outcome, stream=True)) != []


def test_with_retries_every_call_completes() -> None:
    assert faults(KILL, call("ok")) == []
    assert faults(KILL, call("500")) != []
    assert faults(KILL, call("cut")) != []


def test_a_stream_that_began_may_break_but_not_in_an_update() -> None:
    assert faults(KILL, call("broken", stream=True)) == []
    assert faults(UPDATE, call("broken", stream=True)) != []


def test_without_retries_an_error_is_retriable_and_comes_within_5_s() -> None:
    assert faults(KILL, call("cut", patient=False)) == []
    assert faults(KILL, call("503", patient=False)) == []
    assert faults(KILL, call("404", patient=False)) != []
    assert faults(KILL, call("cut", patient=False, ended_s=16.0)) != []
    assert faults(UPDATE, call("503", patient=False)) != []


def test_a_fleet_that_answers_nothing_any_more_is_a_fault() -> None:
    assert judge(KILL, [call("ok")], STRUCK_S) == ["no call succeeded after the fault"]
