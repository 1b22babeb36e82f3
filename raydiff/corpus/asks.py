"""The requests of a shard's documents, and what all of a run have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from raydiff.config import CorpusSettings
from raydiff.request import Decoding
from raydiff.text import Labels, LengthPolicy, Tokenizer, label_tokens

Combine = Literal["merge", "join", "vote"]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request on behalf of a document."""

    index: int
    """Of the document in its shard."""
    level: int
    """0 for the document's own text, 1 and up for merges."""
    chunk: int
    prompt_ids: Sequence[int]
    attempts: int = 0
    """How often it was sent without success."""
    suspect: bool = False
    """Whether a replica broke while it worked on this and others: one of them is to blame."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """Requests that travel together."""

    asks: tuple[Ask, ...]

    @property
    def suspect(self) -> bool:
        """Whether nothing else should be in flight beside it."""
        return any(ask.suspect for ask in self.asks)


def group_asks(asks: Sequence[Ask], documents_per_call: int) -> list[Call]:
    """Calls of like prompts, the longest first; what was sent before goes alone."""
    ordered = sorted(asks, key=lambda ask: len(ask.prompt_ids), reverse=True)
    alone = [Call(asks=(ask,)) for ask in ordered if ask.attempts or ask.suspect]
    fresh = [ask for ask in ordered if not (ask.attempts or ask.suspect)]
    size = documents_per_call
    return [Call(asks=tuple(fresh[i : i + size])) for i in range(0, len(fresh), size)] + alone


def derived_seed(run_seed: int, identity: str) -> int:
    """The seed of a request, from the run's and from what the request is."""
    digest = blake2b(f"{run_seed}\0{identity}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@dataclass(frozen=True, kw_only=True)
class WorkSettings:
    """What the requests of a run have in common."""

    decoding: Decoding
    """Resolved; the seed is replaced row by row."""
    seed: int
    documents_per_call: int
    max_attempts: int
    length: LengthPolicy = field(default_factory=LengthPolicy)
    merge_depth: int = 8
    """Levels of merges at most."""
    combine: Combine = "merge"
    """How answers to chunks become one: summaries are merged, rewritten chunks joined in order,
    and labels vote."""
    labels: Labels = field(default_factory=dict)
    """What to choose from; empty where the answer is free."""
    answer_column: str = "summary"
    """What the output calls the answer."""
    skip_empty: bool = False
    """Whether documents without text have an empty answer instead of a failure."""
    dedupe: bool = True
    """Whether documents with the same content are generated once. The seed of a document then
    follows from its content, else from its place, so that a copy is what would be generated."""

    @classmethod
    def of(cls, settings: CorpusSettings, decoding: Decoding, tokenizer: Tokenizer) -> WorkSettings:
        """Those of a run; `decoding` is resolved.

        Raises:
            UsageError: the tokenizer cannot tell the task's labels apart.
        """
        task = settings.task
        combine: dict[str, Combine] = {"rewrite": "join", "label": "vote"}
        return cls(
            decoding=decoding,
            seed=settings.seed,
            documents_per_call=settings.documents_per_call,
            max_attempts=settings.max_attempts,
            length=LengthPolicy(
                on_long=settings.on_long,
                max_document_tokens=settings.max_document_tokens,
                overlap=task.kind != "rewrite",
            ),
            merge_depth=settings.merge_depth,
            combine=combine.get(task.kind, "merge"),
            labels=label_tokens(tokenizer, task.labels) if task.kind == "label" else {},
            answer_column=task.output_column,
            skip_empty=settings.on_empty == "skip",
            dedupe=settings.dedupe,
        )
