"""Generates a sample under each setting through the running app, in turns, and takes the time.

Documents go the way that a corpus job sends them (`raydiff.corpus.work`): chunks of long ones,
merges, a seed of its own for each row.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from raydiff.bench.evaluation.settings import Setting
from raydiff.bench.requests import document_prompts
from raydiff.bench.sample import Document
from raydiff.config import CorpusSettings
from raydiff.corpus.commit import Totals
from raydiff.corpus.plan import Shard, Span
from raydiff.corpus.sending import Generator
from raydiff.corpus.work import Call, ShardWork, WorkSettings
from raydiff.errors import ClusterError
from raydiff.text import Tokenizer

WARM_UP_DOCUMENTS = 4


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one document under one setting."""

    text: str | None
    """`None` if it failed."""
    error_type: str | None
    totals: Totals


@dataclass(frozen=True, kw_only=True)
class Round:
    """One pass of a setting over the sample."""

    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def totals(self) -> Totals:
        return sum((outcome.totals for outcome in self.outcomes), Totals())

    @property
    def output_tokens_per_s(self) -> float:
        return self.totals.completion_tokens / self.seconds

    @property
    def documents_per_s(self) -> float:
        return sum(outcome.text is not None for outcome in self.outcomes) / self.seconds


@dataclass
class Measured:
    """A setting and its rounds."""

    setting: Setting
    rounds: list[Round] = field(default_factory=list)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Of the first round."""
        return self.rounds[0].outcomes

    @property
    def output_tokens_per_s(self) -> float:
        return median(round_.output_tokens_per_s for round_ in self.rounds)

    @property
    def documents_per_s(self) -> float:
        return median(round_.documents_per_s for round_ in self.rounds)

    @property
    def same_text(self) -> float:
        """Share of documents that got the same text in every round."""
        texts = zip(*([o.text for o in round_.outcomes] for round_ in self.rounds), strict=True)
        return sum(len(set(of_one)) == 1 for of_one in texts) / len(self.outcomes)


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Sends documents through a generator, a pass at a time."""

    generator: Generator
    settings: CorpusSettings
    tokenizer: Tokenizer
    calls_in_flight: int = 8

    async def run(self, documents: Sequence[Document], setting: Setting) -> Round:
        """One pass; tokenising comes before the time is taken.

        Raises:
            ClusterError: the service failed every document.
        """
        work = self._work(documents, setting)
        permits = asyncio.Semaphore(self.calls_in_flight)
        work.begin()
        started = time.perf_counter()
        while calls := work.next_calls():
            await asyncio.gather(*(self._send(work, call, permits) for call in calls))
        seconds = time.perf_counter() - started
        _require_service(work)
        return Round(outcomes=tuple(_outcomes(work, len(documents))), seconds=seconds)

    def _work(self, documents: Sequence[Document], setting: Setting) -> ShardWork:
        spans = tuple(Span(file=d.file, row_start=d.row, rows=1) for d in documents)
        prompts = document_prompts(self.settings, self.tokenizer, setting.decoding)
        return ShardWork(
            Shard(shard_id="evaluation", spans=spans),
            [document.text for document in documents],
            prompts,
            WorkSettings.of(self.settings, setting.decoding, self.tokenizer),
        )

    async def _send(self, work: ShardWork, call: Call, permits: asyncio.Semaphore) -> None:
        async with permits:
            asks = [ask for ask in call.asks if work.wanted(ask)]
            requests = [work.request(ask) for ask in asks]
            try:
                completions = await self.generator.generate(
                    requests, timeout_s=self.settings.call_timeout_s
                )
            except Exception as error:
                for ask in asks:
                    work.fail(ask, type(error).__name__, "", by_service=True)
                return
        for ask, completion in zip(asks, completions, strict=True):
            work.succeed(ask, completion)


def _require_service(work: ShardWork) -> None:
    """Do not take a service that is gone for documents that fail."""
    failures = list(work.failures.values())
    if failures and not work.summaries and all(failure.by_service for failure in failures):
        kinds = ", ".join(sorted({failure.error_type for failure in failures}))
        raise ClusterError(f"All {len(failures)} documents failed with {kinds}.")


def _outcomes(work: ShardWork, documents: int) -> list[Outcome]:
    outcomes = []
    for index in range(documents):
        failure = work.failures.get(index)
        if failure is None:
            done = work.summaries[index]
            outcomes.append(Outcome(text=done.text, error_type=None, totals=done.totals))
        else:
            outcomes.append(Outcome(text=None, error_type=failure.error_type, totals=Totals()))
    return outcomes


async def take_turns(
    passes: Passes,
    documents: Sequence[Document],
    settings: Sequence[Setting],
    *,
    rounds: int,
    progress: Callable[[str], None],
) -> list[Measured]:
    """Each setting's rounds. In every round the settings run one after another, each time in
    another order, so that what the machine does besides falls on all of them."""
    order = random.Random(passes.settings.seed)
    measured = [Measured(setting=setting) for setting in settings]
    for setting in settings:
        await passes.run(documents[:WARM_UP_DOCUMENTS], setting)
    for number in range(rounds):
        for one in order.sample(measured, len(measured)):
            one.rounds.append(await passes.run(documents, one.setting))
            speed = one.rounds[-1].output_tokens_per_s
            progress(f"round {number + 1} of {rounds}: {one.setting.name}: {speed:.0f} tokens/s")
    return measured
