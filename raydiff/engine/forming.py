"""Forming: which rows the next forward advances, of one lane and of those that ride along. Knows
no torch.

Rows of a forward are of one kind and shape. Encoding and denoising alternate, so that a stream of
newcomers delays running rows by at most one forward each time; among groups of one shape the one
that has waited longest goes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from raydiff.config import EngineSettings
from raydiff.engine.asking import verifies
from raydiff.engine.canvas import Canvas
from raydiff.engine.costs import Costs
from raydiff.engine.extent import context_length, encoded_prompt, reserved_context, window
from raydiff.engine.fairness import RowTurns
from raydiff.engine.memory import context_bucket
from raydiff.engine.plan import Shape
from raydiff.engine.prefix import PrefixIndex, leaders
from raydiff.engine.state import State
from raydiff.request import Lane, StepKind

Active = Mapping[Lane, Mapping[str, Canvas]]
Sized = tuple[int, Canvas]
"""Positions that a canvas's next encoding computes, and the canvas."""


@dataclass(frozen=True, kw_only=True)
class Formed:
    """The rows of a forward."""

    kind: StepKind
    lane: Lane
    shape: Shape
    rows: list[Canvas]
    """Those of the lane, then those that ride along."""
    size: int
    """What its cost goes by: rows, or positions of an encoding, padding included."""

    @property
    def key(self) -> tuple[StepKind, Shape]:
        """Forwards of one key differ in size only."""
        return self.kind, self.shape


class Forming:
    """Chooses rows, and learns what their forwards cost."""

    def __init__(self, settings: EngineSettings, prefixes: PrefixIndex | None) -> None:
        self._settings = settings
        self._prefixes = prefixes
        self._costs = Costs()
        self._turns: dict[Lane, RowTurns] = {"interactive": RowTurns(), "batch": RowTurns()}
        self._encoded_last: dict[Lane, bool] = {"interactive": False, "batch": False}
        self._served: dict[tuple[Lane, Shape], int] = {}
        self._tick = 0

    def next(self, active: Active, lane: Lane, *, short: bool) -> Formed:
        """The next forward of a lane that has requests; `short` where another lane's requests may
        come to wait for it."""
        self._tick += 1
        mine = active[lane].values()
        # short encodings follow each other, else they would leave few rows to denoise together
        encodes = short or not self._encoded_last[lane]
        encodes = encodes or all(c.state is not State.DENOISE for c in mine)
        state, first = self._first_to_encode(active[lane]) if encodes else (None, None)
        self._encoded_last[lane] = first is not None
        if first is not None and state is not None:
            return self._encode(active, lane, state, first, short=short)
        return self._denoise(active, lane, short=short)

    def ran(self, formed: Formed, seconds: float) -> None:
        """A forward took so long."""
        self._costs.observe(formed.key, max(1, formed.size), seconds)

    def _first_to_encode(
        self, canvases: Mapping[str, Canvas]
    ) -> tuple[State, Canvas] | tuple[None, None]:
        """Finished blocks first, since their rows already hold memory; then prompts."""
        prompt = None
        for canvas in canvases.values():
            if canvas.state is State.ENCODE_BLOCK:
                return State.ENCODE_BLOCK, canvas
            if prompt is None and canvas.state is State.ENCODE_PROMPT:
                prompt = canvas
        return (None, None) if prompt is None else (State.ENCODE_PROMPT, prompt)

    def _denoise(self, active: Active, lane: Lane, *, short: bool) -> Formed:
        groups: dict[Shape, list[Canvas]] = {}
        for canvas in _in_state(active[lane], State.DENOISE):
            groups.setdefault(shape_of(canvas), []).append(canvas)
        shape = min(groups, key=lambda s: self._served.get((lane, s), 0))
        self._served[lane, shape] = self._tick
        most = self._settings.max_rows
        count = min(len(groups[shape]), most)
        if short:
            count = self._costs.least(("denoise", shape), count, self._settings.batch_yield_loss)
        rows = self._turns[lane].pick(groups[shape], count)
        if lane == "interactive" and active["batch"] and len(rows) < most:
            key = "denoise", shape
            room = self._costs.most(key, len(rows), most, self._settings.rider_share) - len(rows)
            if room:
                waiting = _in_state(active["batch"], State.DENOISE)
                alike = [c for c in waiting if shape_of(c) == shape]
                rows += self._turns["batch"].pick(alike, room)
        return Formed(kind="denoise", lane=lane, shape=shape, rows=rows, size=len(rows))

    def _encode(
        self, active: Active, lane: Lane, state: State, first: Canvas, *, short: bool
    ) -> Formed:
        shape = shape_of(first)
        key = "encode", shape
        limit = self._settings.max_prefill_tokens
        mine = self._like(first, self._alike(active[lane], state, shape))
        rows = _within(mine, limit, self._settings.max_prefill_rows)
        size = _size(rows)
        if short:
            limit = self._costs.least(key, size, self._settings.batch_yield_loss, tries=False)
            rows = _within(rows, limit, len(rows))
        elif lane == "interactive" and active["batch"]:
            # prompts that are cheap beside the forwards that follow may come along more freely
            follows_s = self._costs.seconds(("denoise", shape), 1) or 0.0
            limit = self._costs.most(key, size, limit, self._settings.rider_share, follows_s)
            if limit > size:
                riders = self._like(first, self._alike(active["batch"], state, shape))
                most = max(len(rows), self._settings.max_prefill_rows)
                rows = _within(rows + riders, limit, most, least=len(rows))
                rows = self._leaders(rows, state)
        canvases = [canvas for _, canvas in rows]
        return Formed(kind="encode", lane=lane, shape=shape, rows=canvases, size=_size(rows))

    def _alike(self, canvases: Mapping[str, Canvas], state: State, shape: Shape) -> list[Sized]:
        """Rows to encode of one shape, without those that wait for what another encodes."""
        alike = [c for c in _in_state(canvases, state) if shape_of(c) == shape]
        return self._leaders([(self._unencoded(c), c) for c in alike], state)

    def _leaders(self, rows: list[Sized], state: State) -> list[Sized]:
        if self._prefixes is None or state is not State.ENCODE_PROMPT or len(rows) < 2:
            return rows
        first_ones = leaders(self._prefixes, [encoded_prompt(canvas) for _, canvas in rows])
        return [rows[i] for i in first_ones]

    def _like(self, first: Canvas, rows: list[Sized]) -> list[Sized]:
        """Those most like `first` first: a row is padded to the longest beside it, and so is what
        it attends to."""
        usual, context = self._unencoded(first), context_length(first)

        def unlike(row: Sized) -> tuple[int, int]:
            length, canvas = row
            return abs(length - usual), abs(context_length(canvas) - context)

        return sorted(rows, key=unlike)

    def _unencoded(self, canvas: Canvas) -> int:
        """Positions that the canvas's next encoding computes."""
        if canvas.state is State.ENCODE_BLOCK:
            return len(canvas.frame)
        known = 0 if self._prefixes is None else self._prefixes.known(encoded_prompt(canvas))
        return canvas.encoded_end - known


def _within(rows: Sequence[Sized], limit: int, most: int, least: int = 1) -> list[Sized]:
    """The first rows that one encoding of `limit` positions takes, padding included: at least
    `least` of them and at most `most`."""
    longest = 0
    for count, (length, _) in enumerate(rows[:most]):
        longest = max(longest, length)
        if count >= least and (count + 1) * longest > limit:
            return list(rows[:count])
    return list(rows[:most])


def _size(rows: Sequence[Sized]) -> int:
    """Positions of an encoding, padding included."""
    return len(rows) * max(length for length, _ in rows)


def shape_of(canvas: Canvas) -> Shape:
    """The shape of a canvas's next forward."""
    if not canvas.cached:
        place = window(canvas)
        whole = canvas.spec.attention == "full"
        length = context_bucket(place.end) if whole else canvas.geometry.frame_length
        return Shape(context=0, length=length, verify=verifies(canvas))
    return Shape(
        context=context_bucket(reserved_context(canvas)),
        length=canvas.geometry.frame_length if canvas.exact else 0,
        store=window(canvas).store,
        verify=verifies(canvas),
    )


def _in_state(canvases: Mapping[str, Canvas], state: State) -> Iterator[Canvas]:
    return (c for c in canvases.values() if c.state is state)
