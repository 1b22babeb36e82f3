"""Backlog: how much work an engine has taken on and how fast it does it. Knows no torch.

One thread changes it; any may read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from raydiff.engine.costs import Costs
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
    lane: Lane
    bound: float
    expected: float
    done: int = 0

    @property
    def left(self) -> float:
        return max(1.0, self.expected - self.done)


class Outstanding:
    """Requests in hand, the forwards they still need, and the speed they are done at."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._work: dict[str, _Work] = {}
        self._requests: dict[Lane, int] = dict.fromkeys(LANES, 0)
        self._left: dict[Lane, float] = dict.fromkeys(LANES, 0.0)
        self._needed: dict[Lane, float] = dict.fromkeys(LANES, 1.0)
        self._costs = Costs()

    def add(self, request: GenerationRequest, spec: ModelSpec) -> None:
        """A request is taken on."""
        lane = request.lane
        bound = forwards_bound(request, spec)
        work = _Work(lane, bound, max(1.0, bound * self._needed[lane]))
        self._work[request.request_id] = work
        self._requests[lane] += 1
        self._left[lane] += work.left

    def expected(self, request_id: str) -> float:
        """Forwards that a request in hand takes in all, by what others of its lane took."""
        return self._work[request_id].expected

    def ran(self, request_ids: Iterable[str], seconds: float) -> None:
        """A forward over these rows is done."""
        rows = 0
        for request_id in request_ids:
            rows += 1
            work = self._work.get(request_id)
            if work is not None:
                before = work.left
                work.done += 1
                self._left[work.lane] += work.left - before
        if rows:
            self._costs.observe("all", rows, seconds)

    def remove(self, request_id: str, *, whole: bool) -> int:
        """A request is over, `whole` if it ran to its end; returns the forwards it took."""
        work = self._work.pop(request_id, None)
        if work is None:
            return 0
        lane = work.lane
        self._requests[lane] -= 1
        self._left[lane] -= work.left
        if not self._requests[lane]:
            self._left[lane] = 0.0  # else rounding errors would add up
        if whole and work.done:
            needed = work.done / work.bound
            self._needed[lane] += _WEIGHT * (needed - self._needed[lane])
        return work.done

    def backlog(self) -> Backlog:
        """What is left, and the rate at which so many rows are done; from any thread."""
        requests = dict(self._requests)
        rows = max(1, min(self._max_rows, sum(requests.values())))
        seconds = self._costs.seconds("all", rows)
        return Backlog(
            requests=requests,
            row_forwards={lane: max(0.0, left) for lane, left in self._left.items()},
            row_forwards_per_s=rows / seconds if seconds else 0.0,
        )


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
