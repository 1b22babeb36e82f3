"""Scheduler: which canvases join, and which of them the next forward advances. Knows no torch.

Requests wait in one queue a lane, interactive before batch. They are admitted while rows and
bytes last, then alternate between encoding what is new and denoising, so that a stream of
newcomers delays running rows by at most one forward each time. Among groups of one shape the
one that has waited longest goes next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from raydiff.config import EngineSettings
from raydiff.engine.canvas import Canvas, State
from raydiff.engine.latent_plan import LatentPlan, latent_plan
from raydiff.engine.memory import Budget, Footprint, context_bucket
from raydiff.engine.plan import DenoisePlan, EncodePlan, Shape
from raydiff.engine.planning import denoise_plan, encode_plan
from raydiff.engine.prefix import PrefixIndex, leaders
from raydiff.errors import Overloaded
from raydiff.request import Lane, PrefixStats

Plan = EncodePlan | DenoisePlan | LatentPlan

LANES: tuple[Lane, ...] = ("interactive", "batch")


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
        self._waiting: dict[Lane, deque[Canvas]] = {lane: deque() for lane in LANES}
        self._active: dict[str, Canvas] = {}
        self._served: dict[Shape, int] = {}
        self._tick = 0
        self._encoded_last = False

    def add(self, canvas: Canvas) -> None:
        """Queue a canvas.

        Raises:
            Overloaded: as many requests of its lane are in flight as may be.
        """
        lane = canvas.request.lane
        queue = self._waiting[lane]
        admitted = sum(other.request.lane == lane for other in self._active.values())
        if len(queue) + admitted >= self._settings.max_in_flight:
            raise Overloaded(
                f"lane {lane!r}: expected fewer than {self._settings.max_in_flight} requests in "
                "flight. Try again later.",
                retry_after_s=1.0,
            )
        queue.append(canvas)

    @property
    def active(self) -> Iterable[Canvas]:
        """Admitted canvases, oldest first."""
        return self._active.values()

    @property
    def active_count(self) -> int:
        return len(self._active)

    def depth(self) -> dict[str, int]:
        """Requests waiting, by lane."""
        return {lane: len(queue) for lane, queue in self._waiting.items()}

    def prefix_stats(self) -> PrefixStats | None:
        """What was reused of earlier prompts since the last call, where that is on."""
        return None if self.prefixes is None else self.prefixes.report()

    def has_work(self) -> bool:
        return bool(self._active) or any(self._waiting.values())

    def remove(self, canvas: Canvas) -> None:
        """Forget a canvas, wherever it stands; its bytes are free at once."""
        if self._active.pop(canvas.request_id, None) is None:
            queue = self._waiting[canvas.request.lane]
            if canvas in queue:
                queue.remove(canvas)
        self.budget.release(canvas.request_id)

    def send_back(self, canvas: Canvas) -> None:
        """Return an admitted canvas to the head of its queue, to start over."""
        self.remove(canvas)
        canvas.reset()
        self._waiting[canvas.request.lane].appendleft(canvas)

    def plan(self) -> tuple[Plan, list[Canvas]] | None:
        """The next forward and its canvases in the plan's row order; `None` without work."""
        self._admit()
        if self.prefixes is not None:
            self.prefixes.release()
        if not self._active:
            return None
        self._tick += 1
        encode = self._encode_rows() if not (self._encoded_last and self._can_denoise()) else []
        self._encoded_last = bool(encode)
        if encode:
            return encode_plan(encode, self._shape(encode[0]), self.prefixes), encode
        shape, rows = self._denoise_rows()
        self._served[shape] = self._tick
        latent = rows[0].spec.noise == "gaussian"
        return latent_plan(rows, shape) if latent else denoise_plan(rows, shape), rows

    def _admit(self) -> None:
        for lane in LANES:
            queue = self._waiting[lane]
            while queue and len(self._active) < self._settings.max_rows:
                needed = self._footprint.request_bytes(queue[0])
                if not self.budget.fits(needed):
                    return  # nothing overtakes the oldest, or it would never fit
                canvas = queue.popleft()
                self.budget.hold(canvas.request_id, needed)
                canvas.admitted()
                self._active[canvas.request_id] = canvas

    def _shape(self, canvas: Canvas) -> Shape:
        if not canvas.cached:
            window = canvas.window()
            whole = canvas.spec.attention == "full"
            length = context_bucket(window.end) if whole else canvas.geometry.frame_length
            return Shape(context=0, length=length, verify=canvas.verifying)
        return Shape(
            context=context_bucket(canvas.reserved_context),
            length=canvas.geometry.frame_length if canvas.exact else 0,
            store=canvas.window().store,
            verify=canvas.verifying,
        )

    def _in_state(self, state: State) -> Iterator[Canvas]:
        return (c for c in self._active.values() if c.state is state)

    def _can_denoise(self) -> bool:
        return any(self._in_state(State.DENOISE))

    def _encode_rows(self) -> list[Canvas]:
        """Finished blocks first, since their rows already hold memory; then new prompts."""
        for state in (State.ENCODE_BLOCK, State.ENCODE_PROMPT):
            first = next(self._in_state(state), None)
            if first is not None:
                same = [c for c in self._in_state(state) if self._shape(c) == self._shape(first)]
                if self.prefixes is not None and state is State.ENCODE_PROMPT:
                    first_ones = leaders(self.prefixes, [c.encoded_prompt for c in same])
                    same = [same[i] for i in first_ones]
                return self._like(first, same)
        return []

    def _like(self, first: Canvas, canvases: list[Canvas]) -> list[Canvas]:
        """As many as one encoding takes, those most like `first`: a row is padded to the longest
        beside it, and so is what it attends to.
        """
        lengths = {c.request_id: self._unencoded(c) for c in canvases}
        usual, context = lengths[first.request_id], first.context_length

        def unlike(canvas: Canvas) -> tuple[int, int]:
            length = abs(lengths[canvas.request_id] - usual)
            return length, abs(canvas.context_length - context)

        canvases.sort(key=unlike)
        return canvases[: self._prefill_rows([lengths[c.request_id] for c in canvases])]

    def _unencoded(self, canvas: Canvas) -> int:
        """Positions that the canvas's next encoding computes."""
        if canvas.state is State.ENCODE_BLOCK:
            return len(canvas.frame)
        prompt = canvas.encoded_prompt
        return len(prompt) - (0 if self.prefixes is None else self.prefixes.known(prompt))

    def _prefill_rows(self, lengths: Sequence[int]) -> int:
        """How many rows one encoding takes: by number, and by positions padding included."""
        longest = 0
        for count, length in enumerate(lengths[: self._settings.max_prefill_rows]):
            longest = max(longest, length)
            if count and (count + 1) * longest > self._settings.max_prefill_tokens:
                return count
        return self._settings.max_prefill_rows

    def _denoise_rows(self) -> tuple[Shape, list[Canvas]]:
        groups: dict[Shape, list[Canvas]] = {}
        for canvas in self._in_state(State.DENOISE):
            groups.setdefault(self._shape(canvas), []).append(canvas)
        shape = min(groups, key=lambda s: self._served.get(s, 0))
        return shape, groups[shape]
