"""How many replicas a model's work needs: Serve calls `BacklogPolicy` in its controller.

Work is counted in row forwards (rows times forwards outstanding), so that a request of one block
and one of fifty do not weigh alike. A fleet is too small when a lane's work, over the rate of all
replicas, takes longer than the lane's target; it is too large when neither the work that waits nor
the work that is being done needs so many, for a while.

Serve pickles this module into its controller, which may lack raydiff: it imports nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

INTERACTIVE, BATCH = "interactive_row_forwards", "batch_row_forwards"
RATE, DONE = "row_forwards_per_s", "row_forwards_done"
"""What a replica's `record_autoscaling_stats` tells, by name."""

_FORGOTTEN_PER_S = 1 / 1800
"""Share of the best rate that is forgotten each second that no replica confirms it."""
_STATE = "backlog"

Series = Sequence[Any]
"""Points with `timestamp` and `value`, oldest first."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """When to add replicas and when to remove them; `raydiff.config.AutoscalingSettings` says what
    each means."""

    interactive_target_s: float
    batch_target_s: float
    look_back_s: float
    up_cooldown_s: float
    down_after_s: float
    max_step: int
    utilization: float


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known of a model's fleet at one moment."""

    now_s: float
    target: int
    """Replicas decided on before."""
    interactive: float
    """Row forwards outstanding in the replicas."""
    batch: float
    calls: float
    """In replicas."""
    queued_calls: float
    """Held by handles, as all are while no replica runs."""
    rate: float
    """Row forwards per second of the fastest replica; 0 when none has said."""
    done_per_s: float
    """Row forwards that the fleet lately did per second."""
    informed: bool
    """Whether a replica has reported."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a decision leaves for the next; plain values, as Serve keeps it."""

    rate: float = 0.0
    """Row forwards per second of a busy replica."""
    work_per_call: float = 0.0
    at_s: float = 0.0
    up_s: float = -math.inf
    """When replicas were last added."""
    needs: tuple[tuple[float, int], ...] = ()
    """(second, replicas needed) since `down_after_s` ago, one for each change."""


def decide(seen: Seen, rules: Rules, memory: Memory) -> tuple[int, Memory]:
    """The replicas to have, before the bounds of the deployment."""
    memory = _learned(seen, memory)
    if not seen.informed and not seen.queued_calls:
        return seen.target, memory
    waiting, busy = _waiting(seen, rules, memory), _busy(seen, rules, memory)
    memory = _noted(seen, rules, memory, max(waiting, busy))
    if waiting > seen.target:
        if seen.now_s - memory.up_s < rules.up_cooldown_s:
            return seen.target, memory
        return min(waiting, seen.target + rules.max_step), _with(memory, up_s=seen.now_s)
    most = max(need for _, need in memory.needs)
    since = memory.needs[0][0]
    if most < seen.target and seen.now_s - since >= rules.down_after_s:
        # the next step down waits as long again
        kept = ((seen.now_s, memory.needs[-1][1]),)
        return max(most, seen.target - rules.max_step), _with(memory, needs=kept)
    return seen.target, memory


def _waiting(seen: Seen, rules: Rules, memory: Memory) -> int:
    """Replicas that do what waits within the lanes' targets. Batch work also waits for the
    interactive, which goes first."""
    queued = seen.queued_calls * memory.work_per_call
    idle = not (seen.queued_calls or seen.calls or seen.interactive or seen.batch)
    if idle or memory.rate <= 0:  # work of unknown speed keeps what there is
        return 0 if idle else max(1, seen.target)
    first = seen.interactive / rules.interactive_target_s
    whole = (seen.interactive + seen.batch + queued) / rules.batch_target_s
    return max(1, math.ceil(max(first, whole) / memory.rate))


def _busy(seen: Seen, rules: Rules, memory: Memory) -> int:
    """Replicas that go on doing what is done now, none busier than `utilization`. It keeps a fleet
    without a queue from being cut below what its load needs, and never makes it larger."""
    if memory.rate <= 0:
        return 0
    need = math.ceil(seen.done_per_s / (memory.rate * rules.utilization))
    return min(need, seen.target)


def _learned(seen: Seen, memory: Memory) -> Memory:
    """A replica with few rows is slower than it could be: the best rate counts, for a while."""
    passed_s = max(0.0, seen.now_s - memory.at_s) if memory.at_s else 0.0
    rate = max(seen.rate, memory.rate * (1 - _FORGOTTEN_PER_S) ** passed_s)
    work = seen.interactive + seen.batch
    per_call = work / seen.calls if seen.calls >= 1 and work else memory.work_per_call
    return _with(memory, rate=rate, work_per_call=per_call, at_s=seen.now_s)


def _noted(seen: Seen, rules: Rules, memory: Memory, need: int) -> Memory:
    """The need joins those of the last `down_after_s`; the one before them stays, as it lasted."""
    needs = memory.needs
    if not needs or needs[-1][1] != need:
        needs = (*needs, (seen.now_s, need))
    begin_s = seen.now_s - rules.down_after_s
    while len(needs) > 1 and needs[1][0] <= begin_s:
        needs = needs[1:]
    return _with(memory, needs=needs)


def _with(memory: Memory, **changes: Any) -> Memory:
    return Memory(**{**asdict(memory), **changes})


class Context(Protocol):
    """What the policy reads of Serve's AutoscalingContext."""

    target_num_replicas: int
    current_time: float | None
    policy_state: dict[str, Any]

    @property
    def total_num_requests(self) -> float: ...

    @property
    def total_queued_requests(self) -> float: ...

    @property
    def raw_metrics(self) -> Mapping[str, Mapping[Any, Series]] | None: ...


@dataclass(frozen=True, kw_only=True)
class BacklogPolicy(Rules):
    """Serve makes one of each deployment, from `AutoscalingSettings` by name.

    From zero to one replica Serve goes by itself, as soon as a handle holds a call.
    """

    def __call__(self, context: Context) -> tuple[int, dict[str, Any]]:
        """The replicas to have, and the state that Serve keeps for the next call."""
        memory = Memory(**context.policy_state.get(_STATE, {}))
        target, memory = decide(seen_in(context, self), self, memory)
        return target, {_STATE: asdict(memory)}


def seen_in(context: Context, rules: Rules) -> Seen:
    """What Serve's context tells: means over each replica's last `look_back_s`."""
    metrics = context.raw_metrics or {}
    queued = float(context.total_queued_requests or 0)
    rates = [_mean(series, rules.look_back_s) for series in metrics.get(RATE, {}).values()]
    return Seen(
        now_s=float(context.current_time or 0.0),
        target=context.target_num_replicas,
        interactive=_sum(metrics.get(INTERACTIVE, {}), rules),
        batch=_sum(metrics.get(BATCH, {}), rules),
        calls=max(0.0, float(context.total_num_requests) - queued),
        queued_calls=queued,
        rate=max(rates, default=0.0),
        done_per_s=sum(_slope(series, rules) for series in metrics.get(DONE, {}).values()),
        informed=bool(rates),
    )


def _sum(by_replica: Mapping[Any, Series], rules: Rules) -> float:
    return sum(_mean(series, rules.look_back_s) for series in by_replica.values())


def _recent(series: Series, look_back_s: float) -> list[Any]:
    """The points of a series' last seconds, counted from its newest."""
    points = list(series)
    return [p for p in points if p.timestamp >= points[-1].timestamp - look_back_s]


def _mean(series: Series, look_back_s: float) -> float:
    points = _recent(series, look_back_s)
    return sum(p.value for p in points) / len(points) if points else 0.0


def _slope(series: Series, rules: Rules) -> float:
    """Growth per second of a counter."""
    points = _recent(series, rules.look_back_s)
    if len(points) < 2 or points[-1].timestamp <= points[0].timestamp:
        return 0.0
    return float(
        max(0.0, points[-1].value - points[0].value) / (points[-1].timestamp - points[0].timestamp)
    )
