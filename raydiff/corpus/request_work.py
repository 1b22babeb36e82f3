"""The request bodies of one shard on their way through the model: pure bookkeeping, no I/O.

A body that the endpoint would refuse fails at once, one whose requests fail does so after
`max_attempts`; both have as their message what the endpoint would answer: its status and OpenAI's
error body, as JSON (`refusal_of`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from raydiff.corpus.answers import Failure, Summary, cost_of
from raydiff.corpus.asks import Ask, Call, WorkSettings, group_asks
from raydiff.corpus.commit import Totals
from raydiff.corpus.dedupe import Answer as SharedAnswer
from raydiff.corpus.plan import Shard
from raydiff.corpus.reading import Rejected
from raydiff.corpus.request_lines import RequestLine, RequestReader
from raydiff.corpus.retrying import Round
from raydiff.errors import UsageError
from raydiff.openai.problems import Problem, problem_of
from raydiff.request import Completion, GenerationRequest


@dataclass(kw_only=True)
class _UnderWay:
    """A body whose requests have been sent."""

    line: RequestLine
    completions: dict[int, Completion] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)


class RequestWork:
    """Takes a shard's bodies to answers and failures, one of them per row."""

    claimable: Sequence[bytes] = ()
    """Every request is generated for itself, whatever others ask for."""
    waiting = False

    def __init__(
        self,
        shard: Shard,
        texts: Sequence[str | Rejected],
        reader: RequestReader,
        settings: WorkSettings,
    ) -> None:
        """`texts` has each body of the shard, or its rejection; all keys are indices in it."""
        self.summaries: dict[int, Summary] = {}
        self.failures: dict[int, Failure] = {}
        self.totals = Totals()
        self._shard = shard
        self._reader = reader
        self._settings = settings
        self._texts: dict[int, str] = {}
        self._lines: dict[int, _UnderWay] = {}
        self._round = Round(settings.max_attempts)
        for index, text in enumerate(texts):
            if isinstance(text, str):
                self._texts[index] = text
            else:
                problem = Problem(status=500, message=text.message, type="server_error")
                self._fail(index, text.error_type, problem, attempts=text.attempts)

    def take(self, answers: Mapping[bytes, SharedAnswer]) -> None:
        """Nothing is shared."""
        assert not answers

    def settlement(self) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Nothing is shared."""
        return {}, []

    def begin(self) -> None:
        """Understand the bodies; those that cannot be are refused."""
        texts, self._texts = self._texts, {}
        for index, text in texts.items():
            file, row = self._shard.place(index)
            name = f"{self._shard.shard_id}/{index}"
            try:
                line = self._reader.read(text, name, f"{file}\0{row}")
            except UsageError as error:
                self._fail(index, type(error).__name__, problem_of(error), attempts=0)
                continue
            except Exception as error:  # whatever the tokenizer raises must cost this line only
                self._fail(index, "TokenizerError", problem_of(error), attempts=0)
                continue
            self._lines[index] = _UnderWay(line=line)
            self._round.add(
                Ask(index=index, level=0, chunk=number, prompt_ids=request.prompt_ids)
                for number, request in enumerate(line.requests)
            )

    def next_calls(self) -> list[Call]:
        """What to send now, longest prompts first and like beside like; empty when done."""
        self.begin()
        asks = [ask for ask in self._round.take() if self.wanted(ask)]
        return group_asks(asks, self._settings.documents_per_call)

    def wanted(self, ask: Ask) -> bool:
        """Whether the ask's body can still be answered."""
        return ask.index not in self.failures

    def request(self, ask: Ask) -> GenerationRequest:
        """The request of an ask. Its id is stable; so is its seed, even when sent again."""
        return self._lines[ask.index].line.requests[ask.chunk]

    def succeed(self, ask: Ask, completion: Completion) -> None:
        """Take a completion; one that ended in error counts as a failure."""
        under_way = self._lines[ask.index]
        cost = cost_of(completion.usage)
        self.totals += cost
        under_way.totals += cost
        if completion.finish_reason in ("error", "cancelled"):
            message = completion.error or f"The request was {completion.finish_reason}."
            self.fail(ask, "EngineError", message)
            return
        under_way.completions[ask.chunk] = completion
        if self.wanted(ask) and len(under_way.completions) == len(under_way.line.requests):
            self._finish(ask.index, under_way)

    def fail(
        self,
        ask: Ask,
        error_type: str,
        message: str,
        *,
        by_service: bool = False,
        suspect: bool = False,
    ) -> None:
        """Take a failure: send again, or give the body up."""
        if not self.wanted(ask) or self._round.again(ask, suspect=suspect):
            return
        status = 408 if error_type == "DeadlineExceeded" else 500
        problem = Problem(status=status, message=message, type="server_error")
        attempts = ask.attempts + 1
        self._fail(ask.index, error_type, problem, attempts=attempts, by_service=by_service)

    def suspect(self, ask: Ask) -> None:
        """Send again, alone, with no attempt counted: a replica died under this and others."""
        if self.wanted(ask):
            self._round.suspect(ask)

    def isolate(self, indices: Iterable[int]) -> None:
        """Send these bodies alone from now on: they may have taken something along."""
        self._round.isolate(indices)

    def condemn(self, ask: Ask, error_type: str, message: str, attempts: int) -> None:
        """The ask's body has failed for good: it took something of the service along."""
        if self.wanted(ask):
            problem = Problem(status=500, message=message, type="server_error")
            self._fail(ask.index, error_type, problem, attempts=attempts, by_service=True)

    def _finish(self, index: int, under_way: _UnderWay) -> None:
        done = under_way.completions
        ordered = [done[number] for number in range(len(done))]
        cut = any(c.finish_reason == "length" for c in ordered)
        self.summaries[index] = Summary(
            text=under_way.line.body(ordered),
            finish_reason="length" if cut else "stop",
            totals=under_way.totals,
            chunks=len(ordered),
        )

    def _fail(
        self,
        index: int,
        error_type: str,
        problem: Problem,
        *,
        attempts: int,
        by_service: bool = False,
    ) -> None:
        refusal = {"status": problem.status, **problem.body()}
        self.failures[index] = Failure(
            error_type=error_type,
            message=json.dumps(refusal, ensure_ascii=False),
            attempts=attempts,
            by_service=by_service,
        )


def refusal_of(message: str) -> tuple[int, dict[str, object]]:
    """Status and body of the refusal in the `error_message` of a request's error row."""
    refusal = json.loads(message)
    return refusal.pop("status"), refusal
