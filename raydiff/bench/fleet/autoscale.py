"""`raydiff bench autoscale`: a load that rises and falls, on our autoscaling and on Serve's own."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from raydiff.bench.fleet.host import Fleet, State, fleet_host
from raydiff.bench.report import circumstances
from raydiff.bench.serving.callers import HttpCaller
from raydiff.bench.serving.figures import percentile
from raydiff.bench.serving.loads import Answer, Ask, Caller, Load
from raydiff.bench.serving.remote import Remote
from raydiff.config import AutoscalingSettings, EngineSettings, ModelSettings
from raydiff.errors import UsageError, invalid
from raydiff.simulated import is_simulated

Policy = Literal["backlog", "requests"]
OK = 200
_SPARE_CPUS = 4
_REPLICA_CPUS = 0.1
_CALLS_PER_REPLICA = 2.0
"""Serve's default target of calls in flight for a replica."""


@dataclass(frozen=True, kw_only=True)
class AutoscaleBench:
    """Settings of one run."""

    model: str
    phases: tuple[tuple[int, float], ...] = ((1, 30.0), (40, 150.0), (1, 240.0))
    """(clients, seconds), one after the other."""
    policies: tuple[Policy, ...] = ("backlog", "requests")
    rules: AutoscalingSettings = field(default_factory=AutoscalingSettings)
    min_replicas: int = 1
    max_replicas: int = 16
    max_rows: int = 4
    every_s: float = 1.0
    """Between two looks at the replicas."""

    def __post_init__(self) -> None:
        if not is_simulated(self.model):
            expected = "a simulated model, of which many replicas fit a machine"
            raise UsageError(invalid("model", expected=expected, got=self.model), "model")

    def served(self, policy: Policy) -> ModelSettings:
        """The model as one of the policies has it."""
        return ModelSettings(
            model=self.model,
            num_cpus=_REPLICA_CPUS,
            min_replicas=self.min_replicas,
            max_replicas=self.max_replicas,
            documents_per_call=max(1, int(self.max_rows / _CALLS_PER_REPLICA)),
            engine=EngineSettings(max_rows=self.max_rows),
            autoscaling=self.rules.model_copy(update={"policy": policy}),
        )


@dataclass(frozen=True)
class Call:
    """One request, timed from the run's beginning."""

    phase: int
    sent_s: float
    done_s: float
    status: int


def run_autoscale_bench(
    bench: AutoscaleBench, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Run the load once on each policy.

    Raises:
        ClusterError: no cluster can be started, or a process died.
    """
    rows = []
    for policy in bench.policies:
        calls, states = _run(bench, policy)
        rows.append(summary(bench, policy, calls, states))
        progress(f"{policy}: {len(calls)} requests, at most {rows[-1]['most_replicas']} replicas")
    return {
        "bench": "autoscale",
        "circumstances": circumstances(),
        "model": bench.model,
        "max_rows": bench.max_rows,
        "phases": [{"clients": c, "seconds": s} for c, s in bench.phases],
        "rules": bench.rules.model_dump(),
        "policies": rows,
    }


def summary(
    bench: AutoscaleBench, policy: str, calls: Sequence[Call], states: Sequence[State]
) -> dict[str, Any]:
    """What a run comes to."""
    counts = [state.running + state.starting for state in states]
    done = [call.done_s - call.sent_s for call in calls if call.status == OK]
    phases = [_percentiles(bench, i, calls) for i in range(len(bench.phases))]
    return {
        "policy": policy,
        "requests": len(calls),
        "failed": len(calls) - len(done),
        "most_replicas": max(counts),
        "last_replicas": counts[-1],
        "direction_changes": direction_changes(counts),
        "replica_seconds": sum(
            (b.at_s - a.at_s) * (a.running + a.starting) for a, b in pairwise(states)
        ),
        "phases": phases,
        "series": {
            "seconds": [state.at_s for state in states],
            "running": [state.running for state in states],
            "starting": [state.starting for state in states],
        },
    }


def direction_changes(counts: Sequence[int]) -> int:
    """How often growing turned into shrinking, or the other way round."""
    steps = [b - a for a, b in pairwise(counts) if a != b]
    return sum(a * b < 0 for a, b in pairwise(steps))


def _percentiles(bench: AutoscaleBench, phase: int, calls: Sequence[Call]) -> dict[str, Any]:
    """Of the requests of a phase, and of those sent in its later half, when replicas are there."""
    begin_s = sum(seconds for _, seconds in bench.phases[:phase])
    middle_s = begin_s + bench.phases[phase][1] / 2
    mine = [call for call in calls if call.phase == phase and call.status == OK]
    late = [call for call in mine if call.sent_s >= middle_s]
    return {
        "clients": bench.phases[phase][0],
        "requests": len(mine),
        **{f"p{p}_s": _percentile(mine, p) for p in (50, 95)},
        **{f"late_p{p}_s": _percentile(late, p) for p in (50, 95)},
    }


def _percentile(calls: Sequence[Call], percent: int) -> float:
    seconds = sorted(call.done_s - call.sent_s for call in calls)
    return percentile(seconds, percent) if seconds else math.nan


def _run(bench: AutoscaleBench, policy: Policy) -> tuple[list[Call], list[State]]:
    cpus = math.ceil(bench.max_replicas * _REPLICA_CPUS) + _SPARE_CPUS
    fleet = Fleet(model=bench.served(policy), cpus=cpus)
    with Remote(fleet_host, fleet) as host:
        host.receive()
        return asyncio.run(_load(bench, host.ask("app").url, host))


async def _load(
    bench: AutoscaleBench, url: str, host: Remote[Fleet]
) -> tuple[list[Call], list[State]]:
    caller = HttpCaller(url, bench.model, None)
    calls: list[Call] = []
    states: list[State] = []
    begin_s = time.monotonic()
    watching = asyncio.create_task(_watch(bench, host, begin_s, states))
    try:
        for phase in range(len(bench.phases)):
            await _phase(bench, phase, caller, begin_s, calls)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await caller.close()
    return calls, states


async def _watch(
    bench: AutoscaleBench, host: Remote[Fleet], begin_s: float, states: list[State]
) -> None:
    while True:
        look = asyncio.ensure_future(asyncio.to_thread(host.ask, "state"))
        try:
            state: State = await asyncio.shield(look)
        except asyncio.CancelledError:
            await look  # the pipe must be empty before the next question
            raise
        states.append(
            State(at_s=state.at_s - begin_s, running=state.running, starting=state.starting)
        )
        await asyncio.sleep(bench.every_s)


async def _phase(
    bench: AutoscaleBench, phase: int, caller: Caller, begin_s: float, calls: list[Call]
) -> None:
    """So many clients until the phase's end; each ends with the request it has in hand."""
    end_s = begin_s + sum(seconds for _, seconds in bench.phases[: phase + 1])

    async def client(number: int) -> None:
        turn = 0
        while time.monotonic() < end_s:
            text = f"client {number} turn {turn}"
            ask = Ask(index=turn, texts=(text,), prompts=((0,),))
            sent_s = time.monotonic() - begin_s
            answer: Answer = await caller.ask(ask, Load(asks=()))
            calls.append(Call(phase, sent_s, time.monotonic() - begin_s, answer.status))
            turn += 1

    await asyncio.gather(*(client(number) for number in range(bench.phases[phase][0])))
