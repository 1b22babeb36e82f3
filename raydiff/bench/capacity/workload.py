"""What the documents of a corpus ask of a model, estimated from a sample of them.

A sampled document goes through the job's own bookkeeping (`raydiff.corpus.work`) with a stand-in
for the model, so that chunks and merges are those of the job.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raydiff.bench.evaluation.bootstrap import LEVEL, RESAMPLES
from raydiff.bench.evaluation.generation import Passes
from raydiff.bench.evaluation.settings import Setting
from raydiff.bench.sample import Document
from raydiff.config import CorpusSettings
from raydiff.corpus.sending import Generator
from raydiff.decoding import Decoding
from raydiff.request import Completion, GenerationRequest, Usage
from raydiff.spec import ModelSpec
from raydiff.text import Tokenizer

QUANTITIES = ("requests", "prompt_tokens", "output_tokens", "forwards", "positions")


@dataclass(frozen=True, kw_only=True)
class Answering:
    """What a model writes for one request, on average."""

    output_tokens: float
    forwards: float
    output_spread: float = 0.0
    """Half the width of its interval over itself: what measuring few documents leaves in doubt."""
    forwards_spread: float = 0.0


@dataclass
class Meter:
    """A `Generator` that counts what each document asks of the one behind it."""

    generator: Generator
    spec: ModelSpec
    counts: defaultdict[int, dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: dict.fromkeys(QUANTITIES, 0.0))
    )
    """By the document's index in the sample."""

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        """Pass on and count."""
        completions = await self.generator.generate(requests, timeout_s=timeout_s)
        for request, completion in zip(requests, completions, strict=True):
            usage, decoding = completion.usage, request.decoding
            counted = self.counts[int(request.request_id.split("/")[1])]
            counted["requests"] += 1
            counted["prompt_tokens"] += usage.prompt_tokens
            counted["output_tokens"] += usage.completion_tokens
            counted["forwards"] += usage.forwards
            counted["positions"] += positions(self.spec, decoding, usage)
        return completions


def positions(spec: ModelSpec, decoding: Decoding, usage: Usage) -> float:
    """Token positions that the network computes for a request: the measure of its work.

    With an exact cache the prompt is computed once and each forward computes a block; without one
    each forward computes prompt and answer. Guidance doubles that.
    """
    block = decoding.block_length or spec.block_length
    answer = decoding.max_tokens or spec.max_new_tokens
    if spec.cache == "exact":
        computed = usage.prompt_tokens + usage.forwards * block
    elif decoding.cache in ("prefix", "dual"):
        # refreshed about once a block, else the block alone
        computed = usage.forwards * block + math.ceil(answer / block) * (
            usage.prompt_tokens + answer
        )
    else:
        computed = usage.forwards * (usage.prompt_tokens + answer)
    return computed * (2 if decoding.guidance else 1)


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """Answers every request with the prompt's beginning, as long as answers are on average."""

    tokenizer: Tokenizer
    answering: Answering

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        """At once."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: GenerationRequest) -> Completion:
        usage = Usage(
            prompt_tokens=len(request.prompt_ids),
            completion_tokens=round(self.answering.output_tokens),
            forwards=round(self.answering.forwards),
        )
        ids = request.prompt_ids[: max(1, usage.completion_tokens)]
        return Completion(
            request_id=request.request_id,
            text=self.tokenizer.decode(ids).strip() or "x",
            token_ids=request.choices[0] if request.choices else tuple(ids),
            finish_reason="stop",
            usage=usage,
            choice_probability=1.0 if request.choices else None,
        )


def measure_work(
    settings: CorpusSettings,
    documents: Sequence[Document],
    decoding: Decoding,
    tokenizer: Tokenizer,
    answering: Answering,
) -> list[dict[str, float]]:
    """What each document asks of the model, by quantity. Every copy counts as if it were the only
    one: how many copies a corpus has cannot be told from a sample.
    """
    meter = Meter(StandIn(tokenizer=tokenizer, answering=answering), tokenizer.spec)
    passes = Passes(
        generator=meter,
        settings=settings.model_copy(update={"dedupe": False}),
        tokenizer=tokenizer,
    )
    asyncio.run(passes.run(documents, Setting(name="estimate", decoding=decoding)))
    scale = {
        "output_tokens": _correction(answering.output_tokens),
        "forwards": _correction(answering.forwards),
    }
    return [
        {name: value * scale.get(name, 1.0) for name, value in meter.counts[index].items()}
        for index in range(len(documents))
    ]


def _correction(mean: float) -> float:
    """Undoes the rounding of a mean to whole tokens."""
    return mean / round(mean) if round(mean) else 1.0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A total over the corpus."""

    value: float
    low: float
    high: float
    """Edges of the interval that sampling leaves, at the bootstrap's level."""

    def times(self, factor: float) -> Estimate:
        """Scaled."""
        return Estimate(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def widened(self, spread: float) -> Estimate:
        """With an independent doubt of `spread` times the value on either side."""
        more = spread * self.value
        return Estimate(
            value=self.value,
            low=self.value - math.hypot(self.value - self.low, more),
            high=self.value + math.hypot(self.high - self.value, more),
        )

    def to_dict(self) -> dict[str, float]:
        """As JSON values."""
        return {"value": self.value, "low": self.low, "high": self.high}


def totals(
    work: Sequence[dict[str, float]],
    documents: Sequence[Document],
    rows: int,
    answering: Answering,
    seed: int,
) -> dict[str, Estimate]:
    """The corpus's total of each quantity, with its interval.

    The bootstrap draws whole runs of neighbouring documents, since those are alike; a sample of
    the whole corpus leaves no doubt but that about `answering`.
    """
    found = _sampled(work, documents, rows, seed)
    doubts = {
        "output_tokens": answering.output_spread,
        "forwards": answering.forwards_spread,
        "positions": answering.forwards_spread,
    }
    return {name: found[name].widened(doubts.get(name, 0.0)) for name in QUANTITIES}


def _sampled(
    work: Sequence[dict[str, float]], documents: Sequence[Document], rows: int, seed: int
) -> dict[str, Estimate]:
    runs = np.unique([document.run for document in documents], return_inverse=True)[1]
    held = np.array([[one[name] for name in QUANTITIES] for one in work])
    sums = np.zeros((runs.max() + 1, len(QUANTITIES)))
    np.add.at(sums, runs, held)
    sizes = np.bincount(runs).astype(float)
    drawn = np.random.default_rng(seed).integers(len(sizes), size=(RESAMPLES, len(sizes)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1, keepdims=True)
    mean = held.mean(axis=0)
    spread = (means - mean) * math.sqrt(max(0.0, 1 - len(documents) / rows))
    tail = 50 * (1 - LEVEL)
    edges: Any = np.percentile(mean + spread, [tail, 100 - tail], axis=0)
    return {
        name: Estimate(
            value=float(rows * mean[i]),
            low=float(rows * edges[0][i]),
            high=float(rows * edges[1][i]),
        )
        for i, name in enumerate(QUANTITIES)
    }
