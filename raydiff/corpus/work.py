"""The documents of one shard on their way through the model: pure bookkeeping, no I/O.

Rounds: `next_calls` says what to send now, `succeed` and `fail` take what came of it. A document
longer than the model's context is cut into overlapping chunks; their summaries are summarised
again until one is left. A request that fails is sent again in a call of its own, and after
`max_attempts` its document has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from raydiff.corpus.commit import Totals
from raydiff.corpus.plan import Shard
from raydiff.corpus.reading import Rejected
from raydiff.request import Completion, Decoding, FinishReason, GenerationRequest
from raydiff.text import DocumentPrompts, split_into_chunks

_OVERLAP = 8
"""Chunks share one part in this many of their tokens with the next."""
_MAX_LEVELS = 8


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request on behalf of a document."""

    index: int
    """Of the document in its shard."""
    level: int
    """0 for the document's own text, 1 and up for merges."""
    chunk: int
    prompt_ids: tuple[int, ...]
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


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A summarised document. Token counts and forwards add up all its requests."""

    text: str
    finish_reason: FinishReason
    totals: Totals
    chunks: int


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failed document."""

    error_type: str
    message: str
    attempts: int
    by_service: bool = False
    """Whether the call as a whole failed, rather than the model on this document."""


@dataclass(frozen=True, kw_only=True)
class WorkSettings:
    """What the requests of a run have in common."""

    decoding: Decoding
    """Resolved; the seed is replaced row by row."""
    seed: int
    documents_per_call: int
    max_attempts: int


@dataclass
class _Document:
    level: int = 0
    chunks: int = 0
    texts: list[str] = field(default_factory=list)
    """Summaries of this level's chunks, empty while they are missing."""
    missing: int = 0
    totals: Totals = field(default_factory=Totals)


class ShardWork:
    """Takes a shard's texts to summaries and failures, one of them per row."""

    def __init__(
        self,
        shard: Shard,
        texts: Sequence[str | Rejected],
        prompts: DocumentPrompts,
        settings: WorkSettings,
    ) -> None:
        """`texts` has each document of the shard, or its rejection; all keys are indices in it."""
        self.summaries: dict[int, Summary] = {}
        self.failures: dict[int, Failure] = {}
        self._shard = shard
        self._prompts = prompts
        self._settings = settings
        self._documents: dict[int, _Document] = {}
        self._round: list[Ask] = []
        self._begin(texts)

    @property
    def totals(self) -> Totals:
        """Cost of all finished documents, failed ones included."""
        return sum((d.totals for d in self._documents.values()), Totals())

    def next_calls(self) -> list[Call]:
        """What to send now, longest prompts first and like beside like; empty when done."""
        asks, self._round = self._round, []
        asks.sort(key=lambda ask: len(ask.prompt_ids), reverse=True)
        fresh = [ask for ask in asks if not ask.attempts]
        size = self._settings.documents_per_call
        calls = [Call(asks=tuple(fresh[i : i + size])) for i in range(0, len(fresh), size)]
        return calls + [Call(asks=(ask,)) for ask in asks if ask.attempts]

    def wanted(self, ask: Ask) -> bool:
        """Whether the ask's document can still be summarised."""
        return ask.index not in self.failures

    def request(self, ask: Ask) -> GenerationRequest:
        """The request of an ask. Its id is stable; so is its seed, even when sent again."""
        file, row = self._shard.place(ask.index)
        step = f"{ask.level}/{ask.chunk}"
        identity = f"{self._settings.seed}\0{file}\0{row}/{step}".encode()
        digest = blake2b(identity, digest_size=8).digest()
        seed = int.from_bytes(digest, "big") >> 1
        return GenerationRequest(
            request_id=f"{self._shard.shard_id}/{ask.index}/{step}",
            prompt_ids=ask.prompt_ids,
            decoding=replace(self._settings.decoding, seed=seed),
            lane="batch",
        )

    def succeed(self, ask: Ask, completion: Completion) -> None:
        """Take a completion; one that ended in error counts as a failure."""
        document = self._documents[ask.index]
        usage = completion.usage
        document.totals += Totals(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            forwards=usage.forwards,
        )
        if completion.finish_reason in ("error", "cancelled"):
            message = completion.error or f"The request was {completion.finish_reason}."
            self.fail(ask, "EngineError", message)
            return
        document.texts[ask.chunk] = completion.text.strip()
        document.missing -= 1
        if self.wanted(ask) and not document.missing:
            self._end_level(ask.index, [t for t in document.texts if t], completion.finish_reason)

    def fail(
        self,
        ask: Ask,
        error_type: str,
        message: str,
        *,
        by_service: bool = False,
        suspect: bool = False,
    ) -> None:
        """Take a failure: send again, or give the document up."""
        if not self.wanted(ask):
            return
        attempts = ask.attempts + 1
        if attempts < self._settings.max_attempts:
            again = replace(ask, attempts=attempts, suspect=ask.suspect or suspect)
            self._round.append(again)
        else:
            self.failures[ask.index] = Failure(
                error_type=error_type, message=message, attempts=attempts, by_service=by_service
            )
            self._round = [other for other in self._round if other.index != ask.index]

    def _begin(self, texts: Sequence[str | Rejected]) -> None:
        good = {index: text for index, text in enumerate(texts) if isinstance(text, str)}
        for index, reason in enumerate(texts):
            self._documents[index] = _Document()
            if isinstance(reason, Rejected):
                self.failures[index] = Failure(
                    error_type=reason.error_type, message=reason.message, attempts=0
                )
        whole = self._prompts.whole(list(good.values()))
        for (index, text), prompt in zip(good.items(), whole, strict=True):
            pieces = [prompt] if prompt is not None else self._cut(text, overlap=True)
            self._documents[index].chunks = len(pieces)
            self._ask(index, pieces)

    def _cut(self, text: str, *, overlap: bool) -> list[tuple[int, ...]]:
        limit = self._prompts.max_text_tokens
        shared = limit // _OVERLAP if overlap else 0
        pieces = split_into_chunks(self._prompts.tokenizer, text, limit, shared)
        return [self._prompts.cut(piece) for piece in pieces if piece.strip()]

    def _ask(self, index: int, prompts: Sequence[tuple[int, ...]]) -> None:
        document = self._documents[index]
        document.texts = [""] * len(prompts)
        document.missing = len(prompts)
        for chunk, prompt in enumerate(prompts):
            self._round.append(
                Ask(index=index, level=document.level, chunk=chunk, prompt_ids=prompt)
            )

    def _end_level(self, index: int, texts: list[str], finish_reason: FinishReason) -> None:
        document = self._documents[index]
        if len(texts) <= 1:
            self.summaries[index] = Summary(
                text=texts[0] if texts else "",
                finish_reason=finish_reason,
                totals=document.totals,
                chunks=document.chunks,
            )
            return
        pieces = self._cut("\n".join(texts), overlap=False)
        document.level += 1
        if len(pieces) >= len(texts) or document.level >= _MAX_LEVELS:
            # Summaries as long as what they summarise never come down to one: keep the beginning.
            pieces = pieces[:1]
        self._ask(index, pieces)
