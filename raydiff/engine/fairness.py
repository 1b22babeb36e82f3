"""Fairness: the tenants of a lane take turns. Knows no torch.

Who is admitted next follows start-time fair queueing (Goyal, Vin and Cheng, 1996): each tenant has
a clock that advances by the forwards its requests take, and the one whose clock is behind is next.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence

from raydiff.engine.canvas import Canvas

_MANY = 4096
"""Clocks of tenants without requests are dropped from so many on."""


class TurnQueue:
    """The waiting requests of one lane: first come, first served within a tenant."""

    def __init__(self) -> None:
        self._queues: dict[str, OrderedDict[str, Canvas]] = {}
        self._clocks: dict[str, float] = {}
        self._debts: defaultdict[str, float] = defaultdict(float)
        self._starts: dict[str, float] = {}
        self._order: list[tuple[float, int, str]] = []
        self._entries = 0
        self._now = 0.0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, canvas: Canvas) -> None:
        """Queue a canvas behind those of its tenant."""
        queue = self._queue(canvas.request.tenant)
        queue[canvas.request_id] = canvas
        self._length += 1

    def give_back(self, canvas: Canvas, cost: float) -> None:
        """Queue a canvas that was taken before the others of its tenant, and take back its cost."""
        tenant = canvas.request.tenant
        self.settle(tenant, -cost)
        self.add(canvas)
        self._queues[tenant].move_to_end(canvas.request_id, last=False)

    def first(self) -> Canvas | None:
        """The canvas whose turn it is."""
        while self._order:
            start, _, tenant = self._order[0]
            queue = self._queues.get(tenant)
            if queue and self._starts.get(tenant) == start:
                return next(iter(queue.values()))
            heapq.heappop(self._order)
        return None

    def take(self, cost: float) -> Canvas:
        """Remove the canvas whose turn it is; its tenant's clock advances by `cost` forwards."""
        canvas = self.first()
        assert canvas is not None
        tenant = canvas.request.tenant
        self._now = max(self._now, self._starts[tenant])
        self._clocks[tenant] = self._starts[tenant] + cost + self._debts.pop(tenant, 0)
        heapq.heappop(self._order)
        self._drop(canvas)
        if tenant in self._queues:
            self._line_up(tenant)
        elif len(self._clocks) > _MANY:
            self._clocks = {t: clock for t, clock in self._clocks.items() if clock > self._now}
        return canvas

    def remove(self, canvas: Canvas) -> bool:
        """Forget a canvas; whether it was there."""
        queue = self._queues.get(canvas.request.tenant)
        if queue is None or canvas.request_id not in queue:
            return False
        self._drop(canvas)
        return True

    def settle(self, tenant: str, cost: float) -> None:
        """A request took `cost` forwards more than its tenant's clock advanced by, or less."""
        if tenant in self._starts:  # its next turn is settled already
            self._debts[tenant] += cost
        elif tenant in self._clocks:
            self._clocks[tenant] += cost

    def _queue(self, tenant: str) -> OrderedDict[str, Canvas]:
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = OrderedDict()
            self._line_up(tenant)
        return queue

    def _line_up(self, tenant: str) -> None:
        start = max(self._now, self._clocks.get(tenant, 0.0))
        self._starts[tenant] = start
        self._entries += 1
        heapq.heappush(self._order, (start, self._entries, tenant))

    def _drop(self, canvas: Canvas) -> None:
        tenant = canvas.request.tenant
        queue = self._queues[tenant]
        del queue[canvas.request_id]
        self._length -= 1
        if not queue:
            del self._queues[tenant]
            del self._starts[tenant]
            self._clocks[tenant] = self._clocks.get(tenant, 0.0) + self._debts.pop(tenant, 0.0)


class RowTurns:
    """Which rows go on where a forward has room for some of them."""

    def __init__(self) -> None:
        self._served: Counter[str] = Counter()

    def pick(self, canvases: Sequence[Canvas], count: int) -> list[Canvas]:
        """`count` canvases, so that tenants get equal numbers of rows in the long run; of a tenant
        those that come first."""
        if len(canvases) <= count:
            return list(canvases)
        tenants = {c.request.tenant for c in canvases}
        known = [self._served[t] for t in tenants if t in self._served]
        behind = min(known, default=0)
        places = {t: max(behind, self._served.get(t, behind)) for t in tenants}
        ranked = []
        for at, canvas in enumerate(canvases):
            tenant = canvas.request.tenant
            ranked.append((places[tenant], at))
            places[tenant] += 1
        picked = sorted(heapq.nsmallest(count, ranked), key=lambda pair: pair[1])
        rows = [canvases[at] for _, at in picked]
        served = {t: max(behind, self._served.get(t, behind)) - behind for t in tenants}
        self._served = Counter(served)
        self._served.update(c.request.tenant for c in rows)
        return rows
