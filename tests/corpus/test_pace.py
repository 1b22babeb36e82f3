"""A worker at the pace of its replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from raydiff.corpus import pace as pace_module
from raydiff.corpus.gate import CallGate
from raydiff.corpus.intake import Intake
from raydiff.corpus.pace import Pace
from raydiff.corpus.sizing import Fleet, Sizer
from raydiff.errors import EngineError
from raydiff.request import Completion, Decoding, GenerationRequest, Usage

FLEET = Fleet(running=1, most=1, max_rows=64, max_in_flight=4160, target_calls=4.0)
REQUESTS = [GenerationRequest(request_id="r", prompt_ids=(1,), decoding=Decoding())]


class Replicas:
    """Answers each call after a second of the test's clock; its documents never waited."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.fails = False

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        await asyncio.sleep(0)
        self.now_s += 1.0
        if self.fails:
            raise EngineError("the replica is down")
        usage = Usage(prompt_tokens=1, completion_tokens=1, forwards=1)
        return [
            Completion(
                request_id=r.request_id,
                text="",
                token_ids=(),
                finish_reason="stop",
                usage=usage,
                queue_s=0.0,
                total_s=1.0,
            )
            for r in requests
        ]


class Paced:
    """A pace and all it steers."""

    def __init__(self) -> None:
        self.replicas = Replicas()
        self.gate = CallGate(1)
        self.sizer = Sizer(16)
        self.pace = Pace(
            self.replicas,
            gate=self.gate,
            intake=Intake(self.gate),
            sizer=self.sizer,
            clock=lambda: self.replicas.now_s,
        )

    async def call(self, times: int) -> None:
        async def one() -> None:
            async with self.gate.shared():
                await self.pace.generate(REQUESTS, timeout_s=1.0)

        await asyncio.gather(*(one() for _ in range(times)))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "FOLLOW_S", 0.001)


async def followed(paced: Paced, *told: Fleet | Exception) -> None:
    """Let the pace follow these answers, one after the other."""
    heard = asyncio.Event()
    answers = list(told)

    async def guidance() -> tuple[Fleet | None, int]:
        if not answers:
            heard.set()
            await asyncio.Event().wait()
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, 1

    task = asyncio.create_task(paced.pace.follow(guidance))
    await heard.wait()
    task.cancel()


async def test_the_gate_follows_the_replicas() -> None:
    paced = Paced()
    await followed(paced, FLEET)
    assert paced.gate.calls == 8


async def test_guidance_that_fails_is_asked_for_again() -> None:
    paced = Paced()
    await followed(paced, EngineError("gone"), FLEET)
    assert paced.gate.calls == 8


async def test_answers_of_replicas_that_run_dry_open_the_gate() -> None:
    paced = Paced()
    await followed(paced, FLEET)
    await paced.call(64)
    assert paced.gate.calls > 8


async def test_calls_below_the_bound_say_nothing_of_it() -> None:
    """At the end of a run few calls are in flight, and none waits at the replicas."""
    paced = Paced()
    await followed(paced, FLEET)
    for _ in range(64):
        await paced.call(2)
    assert paced.gate.calls == 8


async def test_a_failed_call_is_not_measured_and_reaches_its_caller() -> None:
    paced = Paced()
    await followed(paced, FLEET)
    paced.replicas.fails = True
    with pytest.raises(EngineError):
        await paced.pace.generate(REQUESTS, timeout_s=1.0)
    assert paced.gate.calls == 8
