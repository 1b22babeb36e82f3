"""Scheduler: which canvases join, and which of them the next forward advances. Knows no torch.

Requests wait in one queue a lane, in which tenants take turns, and are admitted while rows and
bytes last. Interactive requests go first: they take bytes from batch ones where they must, and
whenever one is admitted the next forward is theirs (`Lanes`). `Forming` picks the rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from raydiff.config import EngineSettings
from raydiff.engine.backlog import LANES
from raydiff.engine.canvas import Canvas
from raydiff.engine.fairness import TurnQueue
from raydiff.engine.forming import Formed, Forming
from raydiff.engine.lanes import Lanes
from raydiff.engine.latent_plan import LatentPlan, latent_plan
from raydiff.engine.memory import Budget, Footprint
from raydiff.engine.plan import DenoisePlan, EncodePlan
from raydiff.engine.planning import denoise_plan, encode_plan
from raydiff.engine.prefix import PrefixIndex
from raydiff.engine.trace import ForwardRecord, Trace
from raydiff.request import Lane, PrefixStats

Plan = EncodePlan | DenoisePlan | LatentPlan

_ROWS_BEYOND = 2
"""A tenant without a row is admitted beyond `max_rows`, up to so many times that: the lane's rows
then take turns."""


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """The forward that is about to run."""

    formed: Formed
    waiting: dict[Lane, int]
    ready: dict[Lane, int]
    waited: int | None
    batch_waited: bool


class Scheduler:
    """Queues, admission and the choice of the next forward."""

    def __init__(
        self,
        settings: EngineSettings,
        footprint: Footprint,
        budget: Budget,
        prefixes: PrefixIndex | None = None,
    ) -> None:
        """`prefixes` says what is kept of earlier prompts; `None`: nothing ever is."""
        self._settings = settings
        self._footprint = footprint
        self.budget = budget
        self.prefixes = prefixes
        self.trace = Trace()
        self._waiting: dict[Lane, TurnQueue] = {lane: TurnQueue() for lane in LANES}
        self._active: dict[Lane, dict[str, Canvas]] = {lane: {} for lane in LANES}
        self._rows_of: dict[Lane, Counter[str]] = {lane: Counter() for lane in LANES}
        self._costs_of: dict[str, float] = {}
        self._lanes = Lanes(settings)
        self._forming = Forming(settings, prefixes)
        self._set_aside: list[str] = []
        self._chosen: _Chosen | None = None
        self._tick = 0

    def add(self, canvas: Canvas, forwards: float = 1.0) -> None:
        """Queue a canvas that is expected to take so many forwards."""
        lane = canvas.request.lane
        self._costs_of[canvas.request_id] = forwards
        self._waiting[lane].add(canvas)
        self._lanes.arrived(lane, time.monotonic())

    @property
    def active(self) -> Iterator[Canvas]:
        """Admitted canvases, interactive ones first, oldest first."""
        return chain.from_iterable(rows.values() for rows in self._active.values())

    @property
    def active_count(self) -> int:
        return sum(map(len, self._active.values()))

    def depth(self) -> dict[str, int]:
        """Requests waiting, by lane."""
        return {lane: len(queue) for lane, queue in self._waiting.items()}

    def prefix_stats(self) -> PrefixStats | None:
        """What was reused of earlier prompts since the last call, where that is on."""
        return None if self.prefixes is None else self.prefixes.report()

    def has_work(self) -> bool:
        return any(self._active.values()) or any(map(len, self._waiting.values()))

    def remove(self, canvas: Canvas, forwards: int | None = None) -> None:
        """Forget a canvas, wherever it stands; its bytes are free at once. Its tenant's turn is
        set right where it is told how many forwards it took."""
        request, expected = canvas.request, self._costs_of.pop(canvas.request_id, 0.0)
        queue = self._waiting[request.lane]
        if not queue.remove(canvas) and self._deactivate(canvas):
            queue.settle(request.tenant, (expected if forwards is None else forwards) - expected)

    def send_back(self, canvas: Canvas) -> None:
        """Return an admitted canvas to the head of its tenant's queue, to start over."""
        self._deactivate(canvas)
        canvas.reset()
        self._give_back(canvas)

    def take_set_aside(self) -> list[str]:
        """Requests admitted earlier of which the device has to forget what it holds, now."""
        ids, self._set_aside = self._set_aside, []
        return ids

    def plan(self) -> tuple[Plan, list[Canvas]] | None:
        """The next forward and its canvases in the plan's row order; `None` without work."""
        self._admit()
        if self.prefixes is not None:
            self.prefixes.release()
        if not self.active_count:
            return None
        self._tick += 1
        lane = self._lanes.next(
            interactive=bool(self._active["interactive"]), batch=bool(self._active["batch"])
        )
        short = lane == "batch" and self._lanes.expects_interactive(time.monotonic())
        formed = self._forming.next(self._active, lane, short=short)
        self._chosen = self._circumstances(formed)
        rows = formed.rows
        if formed.kind == "encode":
            return encode_plan(rows, formed.shape, self.prefixes), rows
        latent = rows[0].spec.noise == "gaussian"
        return (latent_plan if latent else denoise_plan)(rows, formed.shape), rows

    def ran(self, began_s: float, seconds: float) -> ForwardRecord:
        """The forward that was planned last is done: learn from it, and trace it."""
        chosen = self._chosen
        assert chosen is not None
        formed = chosen.formed
        self.budget.ran(seconds)
        self._forming.ran(formed, seconds)
        self._lanes.ran(formed.lane, seconds, batch_waited=chosen.batch_waited)
        interactive = sum(c.request.lane == "interactive" for c in formed.rows)
        record = ForwardRecord(
            tick=self._tick,
            kind=formed.kind,
            lane=formed.lane,
            interactive_rows=interactive,
            batch_rows=len(formed.rows) - interactive,
            interactive_ready=chosen.ready["interactive"],
            interactive_waiting=chosen.waiting["interactive"],
            batch_waiting=chosen.waiting["batch"],
            waited=chosen.waited,
            began_s=began_s,
            seconds=seconds,
        )
        self.trace.add(record)
        return record

    def _circumstances(self, formed: Formed) -> _Chosen:
        newcomers = [
            self.trace.batch_forwards_since(c.handed_over_s)
            for c in formed.rows
            if c.first_forward_s is None and c.request.lane == "interactive"
        ]
        ready = {lane: len(rows) for lane, rows in self._active.items()}
        waiting = {lane: len(queue) for lane, queue in self._waiting.items()}
        return _Chosen(
            formed=formed,
            waiting=waiting,
            ready=ready,
            waited=max(newcomers, default=None),
            batch_waited=bool(ready["batch"] or waiting["batch"]),
        )

    def _admit(self) -> None:
        for lane in LANES:
            queue = self._waiting[lane]
            while (canvas := queue.first()) is not None and self._has_row(canvas):
                needed = self._footprint.request_bytes(canvas)
                if not self.budget.fits(needed) and not (
                    lane == "interactive" and self._make_room(needed)
                ):
                    return  # nothing overtakes the one whose turn it is, or it would never fit
                queue.take(self._costs_of[canvas.request_id])
                self.budget.hold(canvas.request_id, needed)
                canvas.admitted()
                self._active[lane][canvas.request_id] = canvas
                self._rows_of[lane][canvas.request.tenant] += 1

    def _has_row(self, canvas: Canvas) -> bool:
        lane, most = canvas.request.lane, self._settings.max_rows
        admitted = len(self._active[lane])
        is_new = not self._rows_of[lane][canvas.request.tenant]
        return admitted < most or (is_new and admitted < _ROWS_BEYOND * most)

    def _make_room(self, needed_bytes: int) -> bool:
        """Set batch requests aside until `needed_bytes` fit, those with the least work to lose
        first; whether there were enough of them."""
        movable = [
            c
            for c in self._active["batch"].values()
            if c.keeps_work or c.restarts < self._settings.max_restarts
        ]
        movable.sort(key=lambda c: (0 if c.keeps_work else c.forwards, c.forwards))
        freed, chosen = 0, []
        for canvas in movable:
            chosen.append(canvas)
            freed += self.budget.held_by(canvas.request_id)
            if self.budget.fits(needed_bytes, freed):
                break
        else:
            return False
        for canvas in reversed(chosen):
            self._deactivate(canvas)
            if canvas.cached or not canvas.keeps_work:
                self._set_aside.append(canvas.request_id)
            canvas.set_aside()
            self._give_back(canvas)
        return True

    def _deactivate(self, canvas: Canvas) -> bool:
        request = canvas.request
        if self._active[request.lane].pop(request.request_id, None) is None:
            return False
        self.budget.release(request.request_id)
        rows = self._rows_of[request.lane]
        rows[request.tenant] -= 1
        if not rows[request.tenant]:
            del rows[request.tenant]
        return True

    def _give_back(self, canvas: Canvas) -> None:
        cost = self._costs_of[canvas.request_id]
        self._waiting[canvas.request.lane].give_back(canvas, cost)
