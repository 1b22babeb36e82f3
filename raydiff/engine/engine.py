"""Engine: many requests, one forward at a time. Plan, run, apply.

Single-threaded and without Ray; `EngineLoop` gives it a thread.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raydiff.config import Device, Dtype, EngineSettings, usable_cores
from raydiff.engine.applying import apply
from raydiff.engine.backlog import Outstanding
from raydiff.engine.canvas import Canvas
from raydiff.engine.latent_plan import LatentPlan
from raydiff.engine.memory import Budget, Footprint
from raydiff.engine.plan import DenoisePlan, EncodePlan
from raydiff.engine.prefix import index_for
from raydiff.engine.report import completion_of, event_of, positions_of, request_stats
from raydiff.engine.running import load_network, machine_of, run_denoise, run_encode
from raydiff.engine.scheduler import Plan, Scheduler
from raydiff.engine.state import State
from raydiff.engine.trace import ForwardRecord
from raydiff.engine.validation import check_request
from raydiff.engine.warmup import warm_up_requests
from raydiff.errors import OutOfMemory, UsageError, invalid
from raydiff.metrics import NullRecorder, Recorder
from raydiff.request import Backlog, Completion, Decoding, Event, GenerationRequest, Lane, StepStats
from raydiff.spec import ModelSpec
from raydiff.text import Tokenizer

if TYPE_CHECKING:
    from raydiff.engine.running import Network

MEMORY_SHARE = 0.5
"""Share of free memory that requests may take where the settings name no budget."""


class Engine:
    """Requests join and leave between forwards; each row has its own parameters and generator."""

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer,
        settings: EngineSettings | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.settings = settings or EngineSettings()
        machine = machine_of(network)
        self.spec: ModelSpec = machine.spec
        self.tokenizer = tokenizer
        self._recorder: Recorder = recorder or NullRecorder()
        self._runner = machine.runner
        footprint = Footprint(spec=machine.spec, dtype_bytes=machine.value_bytes)
        budget = self.settings.memory_budget_bytes or int(machine.free_bytes * MEMORY_SHARE)
        asked = self.settings.prefix_cache_bytes
        prefixes = index_for(machine.spec, footprint.dtype_bytes, asked, budget)
        budget -= prefixes.capacity_bytes if prefixes is not None else 0
        self._scheduler = Scheduler(self.settings, footprint, Budget(budget), prefixes)
        self._footprint = footprint
        self._outstanding = Outstanding(self.settings, self.spec)
        self._canvases: dict[str, Canvas] = {}
        self._events: list[Event] = []

    @classmethod
    def load(
        cls,
        path_or_name: str | Path = "summarizer",
        *,
        device: Device = "auto",
        dtype: Dtype = "auto",
        settings: EngineSettings | None = None,
        recorder: Recorder | None = None,
    ) -> Engine:
        """Load a checkpoint directory, a bundled model, or one that its name describes.

        Sets the process's torch threads from the settings or the cores it may use.

        Raises:
            ModelError: the checkpoint is missing, malformed or of an unknown family.
        """
        settings = settings or EngineSettings()
        threads = settings.threads or usable_cores()
        network = load_network(path_or_name, device, dtype, threads)
        return cls(network, Tokenizer.load(path_or_name), settings, recorder)

    def request(
        self,
        prompt: str | Sequence[int],
        decoding: Decoding | None = None,
        *,
        request_id: str | None = None,
        lane: Lane = "interactive",
        stream: bool = False,
        logprobs: int | None = None,
        snapshots: bool = False,
    ) -> GenerationRequest:
        """Make a request of a text, or of a whole prompt's token ids.

        Raises:
            DecodingError: a parameter is impossible for this model.
        """
        ids = self.tokenizer.prompt_ids(prompt) if isinstance(prompt, str) else tuple(prompt)
        return GenerationRequest(
            request_id=request_id or uuid.uuid4().hex,
            prompt_ids=ids,
            decoding=self.spec.resolve(decoding or Decoding()),
            lane=lane,
            stream=stream,
            logprobs=logprobs,
            snapshots=snapshots,
        )

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request; `step` works on it.

        Raises:
            PromptTooLong, DecodingError, UsageError: it can never run.
            Overloaded: the lane's queue is full.
        """
        for canvas in self.accept([request]):
            self.enqueue(canvas)

    def check(self, request: GenerationRequest) -> None:
        """See whether a request can ever run; from any thread.

        Raises:
            PromptTooLong, DecodingError, UsageError: it cannot.
        """
        check_request(request, self.spec)
        whole = self._scheduler.budget.whole_bytes
        if self._footprint.request_bytes_bound(request) > whole:
            canvas = Canvas(request, self.spec, self.tokenizer)
            needed = self._footprint.request_bytes(canvas)
            if needed > whole:
                raise UsageError(
                    invalid(
                        "prompt and max_tokens",
                        expected=f"a request that takes at most {whole} bytes of memory",
                        got=needed,
                        remedy="Shorten the prompt or lower max_tokens.",
                    ),
                    "max_tokens",
                )

    def accept(self, requests: Sequence[GenerationRequest]) -> list[Canvas]:
        """Take requests on, all or none: `enqueue` has to follow for each; from any thread.

        Raises:
            PromptTooLong, DecodingError, UsageError: one can never run.
            Overloaded: a lane's queue is full.
        """
        now = time.monotonic()
        for request in requests:
            self.check(request)
        self._outstanding.take(requests)
        canvases = [Canvas(request, self.spec, self.tokenizer) for request in requests]
        for canvas in canvases:
            canvas.submitted_s = canvas.handed_over_s = now
        return canvases

    def enqueue(self, canvas: Canvas) -> None:
        """Queue an accepted request; `step` works on it."""
        self._canvases[canvas.request_id] = canvas
        self._scheduler.add(canvas, self._outstanding.expected(canvas.request_id))
        if canvas.state is State.FINISHED:  # a single choice needs no forward
            self._retire(canvas)

    def cancel(self, request_id: str) -> None:
        """End a request and free its slot at once; unknown ids are ignored."""
        canvas = self._canvases.get(request_id)
        if canvas is not None:
            canvas.finish("cancelled")
            self._retire(canvas)

    def has_work(self) -> bool:
        """Whether `step` has something to do or to report."""
        return bool(self._events) or self._scheduler.has_work()

    def load_count(self) -> int:
        """Requests waiting and admitted."""
        return len(self._canvases)

    def backlog(self) -> Backlog:
        """Work taken on and not done, and the rate it is done at; cheap, from any thread."""
        return self._outstanding.backlog()

    def trace(self) -> list[ForwardRecord]:
        """The last forwards, oldest first; from any thread."""
        return self._scheduler.trace.records()

    @property
    def held_bytes(self) -> int:
        """Bytes that admitted requests hold of the memory budget; 0 when there are none."""
        return self._scheduler.budget.held_bytes

    def canvases(self) -> list[Canvas]:
        """Canvases in flight, oldest first, to look at and not to change."""
        return list(self._canvases.values())

    def step(self) -> list[Event]:
        """At most one forward; returns what became final since the last call."""
        planned = self._scheduler.plan()
        for request_id in self._scheduler.take_set_aside():
            self._runner.release(request_id)
        if planned is not None:
            plan, canvases = planned
            started = time.monotonic()
            try:
                committed = self._run(plan, canvases)
            except OutOfMemory as error:
                self._make_room(error)
            else:
                self._report(plan, canvases, started, committed)
        events, self._events = self._events, []
        return events

    def generate(
        self, prompts: Sequence[str | Sequence[int]], decoding: Decoding | None = None
    ) -> list[Completion]:
        """Generate for all prompts and return their completions in order.

        A prompt that cannot run raises before any is started.
        """
        requests = [self.request(prompt, decoding) for prompt in prompts]
        for request in requests:
            check_request(request, self.spec)
        done: dict[str, Completion] = {}
        try:
            for completion in self._drain(requests):
                done[completion.request_id] = completion
        except BaseException:  # an interrupt too must leave an engine that works
            self._abandon({request.request_id for request in requests})
            raise
        return [done[request.request_id] for request in requests]

    def warm_up(self) -> None:
        """Run every shape bucket once, so that no request pays for the first forward."""
        recorder, self._recorder = self._recorder, NullRecorder()
        try:
            for request in warm_up_requests(self.spec):
                list(self._drain([request]))
                self._forget_prefixes()  # else the next would find its beginning
        finally:
            self._recorder = recorder

    def _drain(self, requests: Sequence[GenerationRequest]) -> Iterator[Completion]:
        waiting = iter(requests)
        left, exhausted = len(requests), False
        while left:
            while not exhausted and self.load_count() < self.settings.max_rows * 2:
                request = next(waiting, None)
                exhausted = request is None
                if request is not None:
                    self.submit(request)
            for event in self.step():
                if event.completion is not None:
                    left -= 1
                    yield event.completion

    def _abandon(self, request_ids: set[str]) -> None:
        """Forget requests whose caller will not see them end."""
        for request_id in request_ids:
            self.cancel(request_id)
        self._events = [event for event in self._events if event.request_id not in request_ids]
        self._forget_prefixes()

    def _run(self, plan: Plan, canvases: list[Canvas]) -> int:
        now = time.monotonic()
        for canvas in canvases:
            if canvas.first_forward_s is None:
                canvas.first_forward_s = now
        self._outstanding.advanced(plan.request_ids)
        if isinstance(plan, EncodePlan):
            run_encode(self._runner, plan)
            for canvas in canvases:
                canvas.encoded()
            return 0
        return self._denoise(plan, canvases)

    def _denoise(self, plan: DenoisePlan | LatentPlan, canvases: list[Canvas]) -> int:
        result = run_denoise(self._runner, plan)
        committed = sum(apply(result, plan, i, canvas) for i, canvas in enumerate(canvases))
        for canvas in canvases:
            if canvas.state is State.FINISHED:
                self._retire(canvas)
            elif canvas.request.stream:
                self._emit(canvas)
        return committed

    def _emit(self, canvas: Canvas) -> None:
        event = event_of(canvas)
        if event is not None:
            if event.text:
                self._mark_first_commit(canvas)
            self._events.append(event)

    def _mark_first_commit(self, canvas: Canvas) -> None:
        if canvas.first_commit_s is None:
            canvas.first_commit_s = time.monotonic()

    def _retire(self, canvas: Canvas) -> None:
        """A canvas is finished: free what it holds, say so, record it."""
        name = canvas.request_id
        whole = canvas.finish_reason in ("stop", "length")
        self._scheduler.remove(canvas, self._outstanding.remove(name, whole=whole))
        self._runner.release(name)
        self._canvases.pop(name, None)
        if canvas.transcript.text:
            self._mark_first_commit(canvas)
        now_s = time.monotonic()
        completion = completion_of(canvas, now_s)
        event = event_of(canvas, completion)
        assert event is not None
        self._events.append(event)
        self._recorder.on_request(request_stats(canvas, completion, now_s))

    def _make_room(self, error: OutOfMemory) -> None:
        """Halve the budget and start all admitted rows over; a row that fails alone, with nothing
        kept of earlier prompts, ends."""
        active = list(self._scheduler.active)
        for canvas in active:
            self._runner.release(canvas.request_id)
        if self._scheduler.prefixes is not None:
            self._scheduler.prefixes.halve()
        if not self._forget_prefixes() and len(active) == 1:
            active[0].finish("error", str(error))
            self._retire(active[0])
            return
        self._scheduler.budget.halve()
        for canvas in reversed(active):
            self._scheduler.send_back(canvas)

    def _forget_prefixes(self) -> bool:
        """Free what is kept of earlier prompts; whether there was anything."""
        if self._scheduler.prefixes is not None:
            self._scheduler.prefixes.clear()
        return self._runner.forget_prefixes()

    def _report(self, plan: Plan, canvases: list[Canvas], started_s: float, committed: int) -> None:
        forward_s = time.monotonic() - started_s
        self._outstanding.ran(len(canvases), forward_s)
        record = self._scheduler.ran(started_s, forward_s)
        positions = positions_of(plan)
        self._recorder.on_step(
            StepStats(
                kind=plan.kind,
                rows=len(canvases),
                positions=positions.computed,
                padded_positions=positions.padding,
                context_positions=positions.context,
                padded_context_positions=positions.context_padding,
                forward_s=forward_s,
                committed_tokens=committed,
                queue_depth=self._scheduler.depth(),
                active_rows=self._scheduler.active_count,
                prefix=self._scheduler.prefix_stats() if plan.kind == "encode" else None,
                lane=record.lane,
                lane_rows={"interactive": record.interactive_rows, "batch": record.batch_rows},
                batch_forwards_waited=record.waited,
                backlog=self._outstanding.backlog(),
            )
        )
