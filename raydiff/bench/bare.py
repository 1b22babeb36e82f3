"""The bare engine over a corpus: the requests of a job, in this process, without Ray.

It makes the same prompts, chunks and merges as a job and sends them all at once, longest first.
"""

from __future__ import annotations

from collections.abc import Sequence

from raydiff.config import CorpusSettings, ModelSettings
from raydiff.corpus.plan import Span, make_shard
from raydiff.corpus.work import ShardWork, WorkSettings
from raydiff.engine import Engine
from raydiff.engine.counts import Work, WorkCounter
from raydiff.errors import EngineError
from raydiff.metrics import NullRecorder
from raydiff.request import Decoding
from raydiff.text import DocumentPrompts, prompt_style


class BareEngine:
    """One engine, with the settings of a replica."""

    def __init__(self, model: ModelSettings, settings: CorpusSettings, decoding: Decoding) -> None:
        """`decoding` is resolved.

        Raises:
            ModelError, UsageError: the model cannot be used.
        """
        self._counter = WorkCounter(NullRecorder())
        self._engine = Engine.load(
            model.model, dtype=model.dtype, settings=model.engine, recorder=self._counter
        )
        self._engine.warm_up()
        self._decoding = decoding
        tokenizer = self._engine.tokenizer
        self._prompts = DocumentPrompts.styled(
            tokenizer, prompt_style(model.model, settings.task), decoding.max_tokens or 1
        )
        self._settings = WorkSettings.of(settings, decoding, tokenizer)

    @property
    def work(self) -> Work:
        """Done so far."""
        return self._counter.work

    def run(self, texts: Sequence[str]) -> None:
        """Take documents to their summaries.

        Raises:
            EngineError: a document failed.
        """
        shard = make_shard(0, (Span(file="documents", row_start=0, rows=len(texts)),))
        work = ShardWork(shard, texts, self._prompts, self._settings)
        while calls := work.next_calls():
            asks = [ask for call in calls for ask in call.asks]
            prompts = [ask.prompt_ids for ask in asks]
            done = self._engine.generate(prompts, self._decoding)
            for ask, completion in zip(asks, done, strict=True):
                work.succeed(ask, completion)
        if work.failures:
            failure = next(iter(work.failures.values()))
            raise EngineError(f"{len(work.failures)} documents failed: {failure.message}")
