"""The engine without Ray, HTTP or other processes: what an app is measured against."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from raydiff.bench.serving.callers import decoding_of
from raydiff.bench.serving.loads import Ask, Load, Outcome
from raydiff.client import Refusal
from raydiff.config import ModelSettings
from raydiff.engine import Engine, EngineLoop
from raydiff.engine.counts import Work, WorkCounter
from raydiff.metrics import NullRecorder
from raydiff.request import Completion, Event, GenerationRequest
from raydiff.serve.replica import ReplicaCore, load_engine


class EngineReplicas:
    """A replica's core in this process: clients call the engine's thread and nothing else."""

    def __init__(self, core: ReplicaCore, counter: WorkCounter) -> None:
        self._core = core
        self._counter = counter

    @classmethod
    @contextmanager
    def loaded(cls, model: ModelSettings) -> Iterator[Self]:
        """With the model loaded, as a replica loads it, for the time of the block."""
        counter = WorkCounter(NullRecorder())
        engine = load_engine(model, counter)
        loop = EngineLoop(engine)
        loop.start()
        try:
            yield cls(ReplicaCore(loop, engine.spec), counter)
        finally:
            loop.stop()

    @property
    def work(self) -> Work:
        """Done so far."""
        return self._counter.work

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        """As `Client.generate`."""
        answer = await self._core.generate(requests, timeout_s)
        if isinstance(answer, Refusal):
            raise answer.error
        return answer

    async def stream(self, request: GenerationRequest, *, timeout_s: float) -> AsyncIterator[Event]:
        """As `Client.stream`."""
        async for event in self._core.stream(request, timeout_s):
            if isinstance(event, Refusal):
                raise event.error
            yield event


class AllAtOnce:
    """An engine that gets all prompts, in this thread: the most it can do."""

    def __init__(self, engine: Engine, counter: WorkCounter) -> None:
        self._engine = engine
        self._counter = counter

    @classmethod
    @contextmanager
    def loaded(cls, model: ModelSettings) -> Iterator[Self]:
        """With the model loaded, as a replica loads it, for the time of the block."""
        counter = WorkCounter(NullRecorder())
        yield cls(load_engine(model, counter), counter)

    @property
    def work(self) -> Work:
        """Done so far."""
        return self._counter.work

    def run(self, load: Load) -> list[Outcome]:
        """Generate for every request of the load, as soon as the engine has rows for it."""
        engine = self._engine
        waiting = [self._requests(ask, load) for ask in reversed(load.asks)]
        sent: dict[int, float] = {}
        done: dict[int, list[Completion]] = {}
        wanted = {ask.index: len(ask.prompts) for ask in load.asks}
        outcomes: list[Outcome] = []
        while len(outcomes) < len(load.asks):
            while waiting and engine.load_count() < 2 * engine.settings.max_rows:
                requests = waiting.pop()
                index = _index(requests[0].request_id)
                sent[index], done[index] = time.monotonic(), []
                for request in requests:
                    engine.submit(request)
            for event in engine.step():
                if event.completion is not None:
                    index = _index(event.request_id)
                    done[index].append(event.completion)
                    if len(done[index]) == wanted[index]:
                        outcomes.append(_outcome(index, sent[index], done.pop(index)))
        return sorted(outcomes, key=lambda outcome: outcome.index)

    def _requests(self, ask: Ask, load: Load) -> list[GenerationRequest]:
        decoding = decoding_of(load)
        return [
            self._engine.request(prompt, decoding, request_id=f"{ask.index}-{i}", lane=load.lane)
            for i, prompt in enumerate(ask.prompts)
        ]


def _index(request_id: str) -> int:
    return int(request_id.partition("-")[0])


def _outcome(index: int, sent_s: float, done: Sequence[Completion]) -> Outcome:
    failed = any(completion.finish_reason == "error" for completion in done)
    return Outcome(
        index=index,
        prompts=len(done),
        due_s=sent_s,
        sent_s=sent_s,
        first_s=None,
        done_s=time.monotonic(),
        status=0 if failed else 200,
        tokens=sum(c.usage.completion_tokens for c in done),
    )
