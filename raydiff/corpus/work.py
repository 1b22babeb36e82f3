"""The documents of one shard on their way through the model: pure bookkeeping, no I/O.

Rounds: `next_calls` says what to send now, `succeed` and `fail` take what came of it. A document
longer than a prompt is cut into chunks, whose answers are put together again. A request that
fails is sent again in a call of its own, and after `max_attempts` its document has failed.

Documents with the same content are generated once, in the shard and, through whoever shares
results among shards (`claimable`, `take`, `settlement`), in the whole run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from raydiff.corpus.answers import Failure as Failure
from raydiff.corpus.answers import Summary as Summary
from raydiff.corpus.asks import Ask as Ask
from raydiff.corpus.asks import Call as Call
from raydiff.corpus.asks import WorkSettings as WorkSettings
from raydiff.corpus.asks import derived_seed, group_asks
from raydiff.corpus.commit import Totals
from raydiff.corpus.contents import Contents, content_key
from raydiff.corpus.dedupe import Answer
from raydiff.corpus.fitting import Fitter
from raydiff.corpus.merging import elected, joined_answers, next_level
from raydiff.corpus.plan import Shard
from raydiff.corpus.reading import Rejected
from raydiff.corpus.retrying import Round
from raydiff.corpus.underway import UnderWay
from raydiff.errors import RaydiffError
from raydiff.request import Completion, GenerationRequest
from raydiff.text import DocumentPrompts, Fitted
from raydiff.text.documents import as_tokenizer_error

_WITHOUT_TEXT = ("EmptyDocument", "NullDocument")


class ShardWork:
    """Takes a shard's texts to summaries and failures, one of them per row."""

    def __init__(
        self,
        shard: Shard,
        texts: Sequence[str | Rejected],
        prompts: DocumentPrompts,
        settings: WorkSettings,
        values: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        """`texts` has each document of the shard, or its rejection; all keys are indices in it.
        `values` has the columns that the template names, for each document."""
        self.summaries: dict[int, Summary] = {}
        self.failures: dict[int, Failure] = {}
        self._shard = shard
        self._settings = settings
        self._fitter = Fitter(prompts=prompts, policy=settings.length, values=values)
        self._texts: dict[int, str] = {}
        self._contents = Contents()
        self._documents: dict[int, UnderWay] = {}
        self._spent = Totals()
        self._round = Round(settings.max_attempts)
        for index, text in enumerate(texts):
            if isinstance(text, str):
                self._texts[index] = text
                self._contents.add(index, self._key(index, text))
            else:
                self._reject(index, text)

    @property
    def totals(self) -> Totals:
        """Cost of all that was generated here, for failed documents too, and how many documents
        were copied."""
        return self._spent

    @property
    def claimable(self) -> list[bytes]:
        """Contents that somebody else may have generated; none if nothing is to be shared."""
        return self._contents.claimable if self._settings.dedupe else []

    def take(self, answers: Mapping[bytes, Answer]) -> None:
        """Take what is known of claimable contents: their result, or who generates it."""
        for key, answer in answers.items():
            summary = self._contents.answer(key, answer)
            if summary is not None:
                self._copy(self._contents.succeed(key, summary), summary)

    @property
    def waiting(self) -> bool:
        """Whether contents are left that others generate."""
        return self._contents.waiting

    def settlement(self) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Results of contents generated here, and contents that failed; each is told once, and
        nothing where nothing is to be shared."""
        results, failed = self._contents.settlement()
        return (results, failed) if self._settings.dedupe else ({}, [])

    def begin(self) -> None:
        """Make the prompts of the documents that are to be generated here. Of long documents that
        takes a while; `next_calls` does what is left of it."""
        ready = self._contents.begin()
        texts = [self._texts.pop(index) for index in ready]
        for index, fitted in zip(ready, self._fitter.fit(ready, texts), strict=True):
            if isinstance(fitted, Fitted):
                document = UnderWay(
                    index=index,
                    prompts=self._fitter.prompts_of(index),
                    chunks=len(fitted.prompts),
                    gaps=fitted.gaps,
                    truncated=fitted.truncated,
                )
                self._documents[index] = document
                self._ask(document, [("", prompt) for prompt in fitted.prompts])
            else:
                self._give_up(index, fitted)

    def next_calls(self) -> list[Call]:
        """What to send now, longest prompts first and like beside like; empty when done."""
        self.begin()
        asks = [ask for ask in self._round.take() if self.wanted(ask)]
        return group_asks(asks, self._settings.documents_per_call)

    def wanted(self, ask: Ask) -> bool:
        """Whether the ask's document can still be answered."""
        return ask.index not in self.failures

    def request(self, ask: Ask) -> GenerationRequest:
        """The request of an ask. Its id is stable; so is its seed, even when sent again."""
        step = f"{ask.level}/{ask.chunk}"
        seed = derived_seed(self._settings.seed, f"{self._identity(ask.index)}/{step}")
        return GenerationRequest(
            request_id=f"{self._shard.shard_id}/{ask.index}/{step}",
            prompt_ids=tuple(ask.prompt_ids),
            decoding=replace(self._settings.decoding, seed=seed),
            choices=tuple(self._settings.labels),
            lane="batch",
        )

    def succeed(self, ask: Ask, completion: Completion) -> None:
        """Take a completion; one that ended in error counts as a failure."""
        document = self._documents[ask.index]
        self._spent += document.charge(completion)
        if completion.finish_reason in ("error", "cancelled"):
            message = completion.error or f"The request was {completion.finish_reason}."
            self.fail(ask, "EngineError", message)
            return
        labels = self._settings.labels
        if labels and completion.token_ids not in labels:
            count = len(completion.token_ids)
            message = f"label: expected one of {len(labels)} labels, got {count} other tokens."
            self.fail(ask, "EngineError", message)
            return
        document.take(ask.chunk, completion, labels)
        if self.wanted(ask) and not document.missing:
            self._end_level(document)

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
        if not self.wanted(ask) or self._round.again(ask, suspect=suspect):
            return
        self.failures[ask.index] = Failure(
            error_type=error_type,
            message=message,
            attempts=ask.attempts + 1,
            by_service=by_service,
        )
        self._contents.fail(ask.index)

    def suspect(self, ask: Ask) -> None:
        """Send again, alone, with no attempt counted: a replica died under this and others."""
        if self.wanted(ask):
            self._round.suspect(ask)

    def isolate(self, indices: Iterable[int]) -> None:
        """Send these documents alone from now on: they may have taken something along."""
        self._round.isolate(indices)

    def condemn(self, ask: Ask, error_type: str, message: str, attempts: int) -> None:
        """The ask's document has failed for good, and with it those that have the same content:
        it took something of the service along."""
        if self.wanted(ask):
            failure = Failure(
                error_type=error_type, message=message, attempts=attempts, by_service=True
            )
            self._condemn(ask.index, failure)

    def _key(self, index: int, text: str) -> bytes:
        if not self._settings.dedupe:
            return index.to_bytes(8, "big")
        return content_key(text, values[index] if (values := self._fitter.values) else None)

    def _identity(self, index: int) -> str:
        if self._settings.dedupe:
            return self._contents.key(index).hex()
        file, row = self._shard.place(index)
        return f"{file}\0{row}"

    def _reject(self, index: int, reason: Rejected) -> None:
        if self._settings.skip_empty and reason.error_type in _WITHOUT_TEXT:
            self.summaries[index] = Summary(
                text="", finish_reason="stop", totals=Totals(), chunks=0
            )
        else:
            self.failures[index] = Failure(
                error_type=reason.error_type, message=reason.message, attempts=reason.attempts
            )

    def _give_up(self, index: int, error: RaydiffError) -> None:
        failure = Failure(error_type=type(error).__name__, message=str(error), attempts=0)
        self._condemn(index, failure)

    def _condemn(self, index: int, failure: Failure) -> None:
        self.failures.update(dict.fromkeys(self._contents.fail_all(index), failure))

    def _ask(self, document: UnderWay, groups: Sequence[tuple[str, Sequence[int] | None]]) -> None:
        self._round.add(document.ask(groups))

    def _end_level(self, document: UnderWay) -> None:
        answers = document.texts
        texts = [text for text in answers if text]
        if self._settings.combine == "join":
            self._finish(document, joined_answers(answers, document.gaps))
        elif self._settings.combine == "vote":
            probabilities = [document.probabilities[chunk] for chunk in range(len(answers))]
            self._finish(document, *elected(answers, probabilities))
        elif len(texts) <= 1:
            self._finish(document, texts[0] if texts else "")
        else:
            self._merge(document, texts)

    def _merge(self, document: UnderWay, texts: Sequence[str]) -> None:
        document.level += 1
        last = document.level >= self._settings.merge_depth
        try:
            level = next_level(document.prompts.merging, texts, last=last)
        except BaseException as error:
            self._give_up(document.index, as_tokenizer_error(error))
            return
        document.truncated |= level.truncated
        self._ask(document, [(group.text, group.prompt) for group in level.groups])

    def _finish(self, document: UnderWay, text: str, probability: float | None = None) -> None:
        index = document.index
        summary = document.summary(text, probability)
        members = self._contents.succeed(self._contents.key(index), summary)
        self.summaries[index] = summary
        self._copy([member for member in members if member != index], summary)

    def _copy(self, indices: Sequence[int], summary: Summary) -> None:
        self.summaries.update(dict.fromkeys(indices, summary))
        self._spent += Totals(duplicates=len(indices))
