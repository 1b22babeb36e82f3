"""From an input to what it will take: documents, tokens, forwards, hours, cost, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from raydiff.bench.capacity.advice import advise_replicas, advise_shard_rows
from raydiff.bench.capacity.roofline import roofline_speed, shape_of
from raydiff.bench.capacity.speed import Speed, benchmark_speed, measure_speed
from raydiff.bench.capacity.workload import Answering, Estimate, measure_work, totals
from raydiff.bench.sample import Document, Sample, draw_sample
from raydiff.config import CorpusSettings, Dtype
from raydiff.decoding import Decoding
from raydiff.errors import InputError, UsageError, invalid
from raydiff.families import load_spec
from raydiff.families.presets import is_random
from raydiff.spec import ModelSpec
from raydiff.text import Tokenizer, decoding_for

EFFICIENCY = 0.85
"""Documents/s of a job over those of the bare engine, where nothing else is known."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be estimated."""

    corpus: CorpusSettings
    decoding: Decoding
    sample: int = 400
    """Documents that are read."""
    measured: int = 128
    """Of those, documents that are generated to measure the speed."""
    replicas: int | None = None
    price_per_hour: float | None = None
    """Of one replica."""
    within_hours: float | None = None
    """Deadline to advise replicas for."""
    benchmark: str | None = None
    """Report of `raydiff bench engine` or `raydiff bench shapes`."""
    accelerator: str | None = None
    """Work the speed out from this accelerator's data sheet."""
    batch: int = 64
    """Rows of a forward on it."""
    tokens_per_forward: float | None = None
    dtype: Dtype = "bf16"
    threads: int = 1
    """Of an engine that is measured."""
    efficiency: float = EFFICIENCY

    def with_replicas(self, replicas: int) -> Question:
        """The same with another number of replicas."""
        return replace(self, replicas=replicas)

    def check(self) -> None:
        """Refuse impossible values.

        Raises:
            UsageError: there is one; it is named.
        """
        for name in ("sample", "measured", "replicas", "batch", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                expected = "an integer of at least 1"
                raise UsageError(invalid(name, expected=expected, got=value), name)
        for name in ("price_per_hour", "within_hours", "tokens_per_forward", "efficiency"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(invalid(name, expected="a number above 0", got=value), name)
        if self.benchmark and self.accelerator:
            message = invalid(
                "accelerator", expected="none beside a benchmark", got=self.accelerator
            )
            raise UsageError(message, "accelerator")


def estimate_capacity(question: Question) -> dict[str, Any]:
    """Everything as JSON values.

    Raises:
        UsageError: a setting or the input cannot work.
        ModelError: there is no such model.
    """
    question.check()
    corpus = question.corpus
    spec = load_spec(corpus.model)
    asked = decoding_for(corpus.model, corpus.task, question.decoding)
    decoding = spec.resolve(replace(asked, seed=None))
    tokenizer = Tokenizer.load(corpus.model)
    sample = draw_sample(corpus, question.sample, seed=corpus.seed)
    texts = [document for document in sample.documents if isinstance(document.text, str)]
    if not texts:
        raise InputError(f"input: none of {len(sample.documents)} documents is text.", "input")
    speed = _speed(question, spec, decoding, tokenizer, texts)
    work = measure_work(corpus, sample.documents, decoding, tokenizer, speed.answering)
    found = totals(work, sample.documents, sample.rows, speed.answering, corpus.seed)
    return _report(question, decoding, sample, speed, found)


def _speed(
    question: Question,
    spec: ModelSpec,
    decoding: Decoding,
    tokenizer: Tokenizer,
    documents: Sequence[Document],
) -> Speed:
    corpus = question.corpus
    if question.benchmark:
        return benchmark_speed(question.benchmark, corpus.model, spec, decoding)
    if question.accelerator:
        longest = Answering(output_tokens=decoding.max_tokens or 1, forwards=1)
        work = measure_work(corpus, documents, decoding, tokenizer, longest)
        prompts, requests = (sum(w[q] for w in work) for q in ("prompt_tokens", "requests"))
        return roofline_speed(
            spec,
            shape_of(corpus.model, spec, question.dtype),
            decoding,
            accelerator=question.accelerator,
            batch=question.batch,
            prompt_tokens=prompts / requests,
            tokens_per_forward=question.tokens_per_forward,
        )
    return measure_speed(corpus, _spread(documents, question.measured), decoding, question.threads)


def _spread(documents: Sequence[Document], count: int) -> list[Document]:
    """Some of the documents, at even distances."""
    count = min(count, len(documents))
    return [documents[i * len(documents) // count] for i in range(count)]


def _of_model(model: str) -> list[str]:
    """What is unlike a real checkpoint."""
    if not is_random(model):
        return []
    return [f"{model} has a tokenizer of bytes: a real one makes several times fewer tokens"]


def _report(
    question: Question,
    decoding: Decoding,
    sample: Sample,
    speed: Speed,
    found: dict[str, Estimate],
) -> dict[str, Any]:
    per_replica = found["positions"].times(speed.seconds_per_position / question.efficiency)
    per_replica = per_replica.widened(speed.spread)
    replica_hours = per_replica.times(1 / 3600)
    documents_per_s = sample.rows / per_replica.value
    advised = (
        advise_replicas(replica_hours.high, question.within_hours)
        if question.within_hours
        else None
    )
    replicas = question.replicas or advised or 1
    shard_rows, why = advise_shard_rows(sample.rows, documents_per_s, replicas)
    price = question.price_per_hour
    unread = sum(not isinstance(document.text, str) for document in sample.documents)
    return {
        "input": question.corpus.input,
        "model": question.corpus.model,
        "decoding": decoding.given(),
        "files": sample.files,
        "size_bytes": sample.size_bytes,
        "documents": sample.rows,
        "sample": len(sample.documents),
        "not_text": unread / len(sample.documents) * sample.rows,
        "estimates": {name: estimate.to_dict() for name, estimate in found.items()},
        "speed": {
            "source": speed.source,
            "assumptions": [*speed.assumptions, *_of_model(question.corpus.model)],
            "efficiency": question.efficiency,
            "documents_per_s": documents_per_s,
            "output_tokens_per_s": found["output_tokens"].value / per_replica.value,
        },
        "replicas": replicas,
        "seconds": per_replica.times(1 / replicas).to_dict(),
        "hours": replica_hours.times(1 / replicas).to_dict(),
        "replica_hours": replica_hours.to_dict(),
        "cost": replica_hours.times(price).to_dict() if price else None,
        "advice": {
            "shard_rows": shard_rows,
            "shards": -(-sample.rows // shard_rows),
            "why": why,
            "replicas": advised,
            "within_hours": question.within_hours,
        },
    }
