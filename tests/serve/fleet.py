"""A fleet in virtual time: replicas that do row forwards, and an autoscaler that looks at it the
way Serve does, through reports of every few seconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from raydiff.config import AutoscalingSettings
from raydiff.serve.autoscaling import BATCH, DONE, INTERACTIVE, RATE, BacklogPolicy

TICK_S = 0.5


@dataclass
class Replica:
    """Does up to `rows` requests at once, `forward_s` each forward; more wait."""

    rows: int
    forward_s: float
    ready_s: float
    queue: list[float] = field(default_factory=list)
    done: float = 0.0
    points: dict[str, list[Any]] = field(default_factory=dict)

    def run(self) -> None:
        """One tick: each row takes the next request as soon as it is free."""
        rows = self.queue[: self.rows]
        waiting = self.queue[self.rows :][::-1]
        left = []
        for work in rows:
            steps = TICK_S / self.forward_s
            while steps >= work:
                self.done += work
                steps -= work
                if not waiting:
                    break
                work = waiting.pop()
            else:
                self.done += steps
                left.append(work - steps)
        self.queue = left + waiting[::-1]

    def record(self, now_s: float, lane: str) -> None:
        rows = max(1, min(self.rows, len(self.queue)))
        other = BATCH if lane == INTERACTIVE else INTERACTIVE
        rate = rows / self.forward_s if self.done else 0.0
        values = {lane: sum(self.queue), other: 0.0, RATE: rate, DONE: self.done}
        for name, value in values.items():
            point = SimpleNamespace(timestamp=now_s, value=value)
            self.points.setdefault(name, []).append(point)
            self.points[name] = self.points[name][-24:]


@dataclass
class Fleet:
    """Arrivals, service, start-up delays, and a decision each tick."""

    settings: AutoscalingSettings
    low: int = 1
    high: int = 16
    rows: int = 4
    forward_s: float = 0.03
    forwards: float = 17.0
    start_s: float = 4.0
    lane: str = INTERACTIVE
    now_s: float = 1_000_000.0
    counts: list[int] = field(default_factory=list)
    backlog_s: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)
    """Requests that no replica has yet."""

    def __post_init__(self) -> None:
        rules = self.settings.model_dump(exclude={"policy", "stats_interval_s"})
        self._policy = BacklogPolicy(**rules)
        self._state: dict[str, Any] = {}
        self._reports: dict[int, dict[str, list[Any]]] = {}
        self._reported_s = 0.0
        self.replicas = [self._replica(0.0) for _ in range(self.low)]

    def run(self, seconds: float, arrivals: Callable[[float, int], int]) -> None:
        """`arrivals(seconds since the beginning, requests in flight)` is a number per tick."""
        begin = self.now_s
        while self.now_s < begin + seconds:
            self._arrive(arrivals(self.now_s - begin, self.in_flight()))
            for replica in self._running():
                replica.run()
                replica.record(self.now_s, self.lane)
            if self.now_s - self._reported_s >= self.settings.stats_interval_s:
                self._reported_s = self.now_s
                self._reports = {
                    id(r): {k: list(v) for k, v in r.points.items()} for r in self._running()
                }
            self._decide()
            self.now_s += TICK_S
            self.counts.append(len(self.replicas))
            rate = len(self.replicas) * self.rows / self.forward_s
            work = sum(sum(r.queue) for r in self.replicas) + sum(self.held)
            self.backlog_s.append(work / rate if rate else 0.0)

    def in_flight(self) -> int:
        return len(self.held) + sum(len(replica.queue) for replica in self.replicas)

    def turns(self) -> int:
        """How often the replicas' number changed its direction."""
        steps = [b - a for a, b in pairwise(self.counts) if a != b]
        return sum(a * b < 0 for a, b in pairwise(steps))

    def _replica(self, ready_s: float) -> Replica:
        return Replica(rows=self.rows, forward_s=self.forward_s, ready_s=ready_s)

    def _running(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.ready_s <= self.now_s]

    def _arrive(self, count: int) -> None:
        self.held += [self.forwards] * count
        running = self._running()
        for work in self.held if running else ():
            min(running, key=lambda replica: len(replica.queue)).queue.append(work)
        if running:
            self.held = []

    def _decide(self) -> None:
        running, target = self._running(), len(self.replicas)
        if not running and self.held:
            wanted = max(1, target)  # Serve's own step from zero
        else:
            calls = sum(len(r.queue) for r in running)
            known = [self._reports[id(r)] for r in running if id(r) in self._reports]
            names = {name for report in known for name in report}
            context = SimpleNamespace(
                current_num_replicas=len(running),
                target_num_replicas=target,
                current_time=self.now_s,
                policy_state=self._state,
                total_num_requests=float(calls + len(self.held)),
                total_queued_requests=float(len(self.held)),
                raw_metrics={n: dict(enumerate(r[n] for r in known)) for n in names},
            )
            wanted, self._state = self._policy(context)
        wanted = max(self.low, min(self.high, wanted))
        self.replicas += [self._replica(self.now_s + self.start_s) for _ in range(wanted - target)]
        if wanted < target:
            leaving = self.replicas[wanted:]
            self.replicas = self.replicas[:wanted]
            for replica in leaving:  # Serve lets them finish; here their work moves
                self.held += replica.queue


def clients(count: int) -> Callable[[float, int], int]:
    """So many clients, each with one request at a time."""
    return lambda _, in_flight: max(0, count - in_flight)


def by_chance(rate: Callable[[float], float], seed: int) -> Callable[[float, int], int]:
    """Arrivals of a changing rate per second, by chance but always the same."""
    chance = random.Random(seed)

    def draw(now_s: float, _: int) -> int:
        expected = rate(now_s) * TICK_S
        limit, product, count = math.exp(-expected), chance.random(), 0
        while product > limit:
            count, product = count + 1, product * chance.random()
        return count

    return draw
