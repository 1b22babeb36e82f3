"""Backlog: how much work an engine has taken on and how fast it does it. Knows no torch.

Any thread may use it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raydiff.config import EngineSettings
from raydiff.engine.costs import Costs
from raydiff.errors import Overloaded, UsageError
from raydiff.request import Backlog, GenerationRequest, Lane
from raydiff.spec import ModelSpec

LANES: tuple[Lane, ...] = ("interactive", "batch")
_WEIGHT = 0.05
"""Of the newest request in the share of its bound that requests need."""
SHORTEST_S, LONGEST_S, UNKNOWN_S = 0.1, 60.0, 1.0
"""Bounds of what callers are told to wait, and what without a measured rate."""


def forwards_bound(request: GenerationRequest, spec: ModelSpec) -> float:
    """Forwards that a request takes at most or nearly so, encoding included."""
    d = spec.resolve(request.decoding)
    assert d.max_tokens is not None
    assert d.block_length is not None
    length = min(d.max_tokens, max(map(len, request.choices), default=d.max_tokens))
    if spec.noise == "gaussian":
        return float((d.steps or 1) * (2 if d.solver == "heun" else 1))
    blocks = -(-length // d.block_length)
    steps = min(d.block_length, length, d.steps or d.block_length)
    if spec.noise == "uniform":
        steps = d.steps or steps
    encodings = 0 if spec.attention == "full" or d.cache == "none" else blocks
    return float(encodings + blocks * steps * (2 if d.guidance else 1))


@dataclass(slots=True)
class _Work:
    request: GenerationRequest
    bound: float
    expected: float
    done: int = 0

    @property
    def left(self) -> float:
        return max(1.0, self.expected - self.done)


class Outstanding:
    """Requests in hand, the forwards they still need, and the speed they are done at."""

    def __init__(self, settings: EngineSettings, spec: ModelSpec) -> None:
        self._max_rows = settings.max_rows
        self._limit = settings.max_in_flight
        self._spec = spec
        self._lock = threading.Lock()
        self._work: dict[str, _Work] = {}
        self._requests: dict[Lane, int] = dict.fromkeys(LANES, 0)
        self._of_tenant: dict[Lane, Counter[str]] = {lane: Counter() for lane in LANES}
        self._left: dict[Lane, float] = dict.fromkeys(LANES, 0.0)
        self._needed: dict[Lane, float] = dict.fromkeys(LANES, 1.0)
        self._costs = Costs()

    def take(self, requests: Sequence[GenerationRequest]) -> None:
        """Take requests on, all or none.

        Raises:
            Overloaded: a lane has as many as it may.
            UsageError: an id is in flight already.
        """
        works = [self._judged(request) for request in requests]
        with self._lock:
            self._check_room(requests)
            for work in works:
                lane = work.request.lane
                self._work[work.request.request_id] = work
                self._requests[lane] += 1
                self._of_tenant[lane][work.request.tenant] += 1
                self._left[lane] += work.left

    def expected(self, request_id: str) -> float:
        """Forwards that a request in hand takes in all, by what others of its lane took."""
        return self._work[request_id].expected

    def advanced(self, request_ids: Iterable[str]) -> None:
        """These rows are in the forward that is about to run."""
        with self._lock:
            for request_id in request_ids:
                work = self._work.get(request_id)
                if work is not None:
                    before = work.left
                    work.done += 1
                    self._left[work.request.lane] += work.left - before

    def ran(self, rows: int, seconds: float) -> None:
        """A forward over so many rows took so long."""
        with self._lock:
            self._costs.observe("all", rows, seconds)

    def remove(self, request_id: str, *, whole: bool) -> int:
        """A request is over, `whole` if it ran to its end; returns the forwards it took."""
        with self._lock:
            work = self._work.pop(request_id, None)
            if work is None:
                return 0
            lane, tenant = work.request.lane, work.request.tenant
            self._requests[lane] -= 1
            self._of_tenant[lane][tenant] -= 1
            if not self._of_tenant[lane][tenant]:
                del self._of_tenant[lane][tenant]
            self._left[lane] -= work.left
            if not self._requests[lane]:
                self._left[lane] = 0.0  # else rounding errors would add up
            if whole and work.done:
                needed = work.done / work.bound
                self._needed[lane] += _WEIGHT * (needed - self._needed[lane])
            return work.done

    def backlog(self) -> Backlog:
        """What is left, and the rate at which so many rows are done."""
        with self._lock:
            return self._backlog()

    def _judged(self, request: GenerationRequest) -> _Work:
        bound = forwards_bound(request, self._spec)
        return _Work(request, bound, max(1.0, bound * self._needed[request.lane]))

    def _backlog(self) -> Backlog:
        requests = dict(self._requests)
        rows = max(1, min(self._max_rows, sum(requests.values())))
        seconds = self._costs.seconds("all", rows)
        return Backlog(
            requests=requests,
            row_forwards={lane: max(0.0, left) for lane, left in self._left.items()},
            row_forwards_per_s=rows / seconds if seconds else 0.0,
        )

    def _check_room(self, requests: Sequence[GenerationRequest]) -> None:
        for (lane, tenant), asked in Counter((r.lane, r.tenant) for r in requests).items():
            present = self._of_tenant[lane]
            pending, own = self._requests[lane], present.get(tenant, 0)
            share = self._limit // (len(present) + (tenant not in present))
            if pending + asked > self._limit and own + asked > share:
                excess = min(pending + asked - self._limit, own + asked - share)
                raise Overloaded(
                    f"lane {lane!r}: {pending} requests are in flight, {own} of them of this "
                    f"caller, and {asked} more would pass the limit of {self._limit}. Try again "
                    "later.",
                    retry_after_s=retry_after_s(self._backlog(), lane, excess),
                )
        taken = [r.request_id for r in requests if r.request_id in self._work]
        if taken:
            raise UsageError(f"request_id: {taken[0]!r} is in flight already.")


def retry_after_s(backlog: Backlog, lane: Lane, excess: int) -> float:
    """When `excess` requests of a lane will be done, as a caller is told to wait; in seconds.

    Batch requests are done after what the interactive lane holds.
    """
    requests = backlog.requests.get(lane, 0)
    if not requests or backlog.row_forwards_per_s <= 0:
        return UNKNOWN_S
    share = min(1.0, excess / requests)
    first = backlog.seconds("interactive") if lane == "batch" else 0.0
    return min(LONGEST_S, max(SHORTEST_S, first + share * backlog.seconds(lane)))
