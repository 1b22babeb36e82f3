"""A document that is being generated, level by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raydiff.corpus.answers import Summary, cost_of
from raydiff.corpus.asks import Ask
from raydiff.corpus.commit import Totals
from raydiff.request import Completion, FinishReason
from raydiff.text import DocumentPrompts


@dataclass(kw_only=True)
class UnderWay:
    """Level 0 asks for the document's chunks; each further one merges what came of the last."""

    index: int
    """Of the document in its shard."""
    prompts: DocumentPrompts
    chunks: int
    gaps: tuple[str, ...]
    """White space that stood at the chunks' ends."""
    truncated: bool
    level: int = 0
    texts: list[str] = field(default_factory=list)
    """Answers of this level, empty while they are missing."""
    probabilities: dict[int, float] = field(default_factory=dict)
    """Of labels, by chunk."""
    missing: int = 0
    finish_reason: FinishReason = "stop"
    """Of this level: "length" if that ended one of its answers."""
    totals: Totals = field(default_factory=Totals)

    def ask(self, groups: Sequence[tuple[str, Sequence[int] | None]]) -> list[Ask]:
        """Begin a level: its requests. Where there is no prompt, the text is the answer."""
        self.texts = [text for text, _ in groups]
        self.finish_reason = "stop"
        asks = [
            Ask(index=self.index, level=self.level, chunk=n, prompt_ids=prompt)
            for n, (_, prompt) in enumerate(groups)
            if prompt is not None
        ]
        self.missing = len(asks)
        return asks

    def charge(self, completion: Completion) -> Totals:
        """Note what a request cost, whatever came of it; returns it."""
        cost = cost_of(completion.usage)
        self.totals += cost
        return cost

    def take(
        self, chunk: int, completion: Completion, labels: Mapping[tuple[int, ...], str]
    ) -> None:
        """Take an answer; with `labels`, the one that its tokens spell."""
        if labels:
            self.texts[chunk] = labels[completion.token_ids]
            self.probabilities[chunk] = completion.choice_probability or 0.0
        else:
            self.texts[chunk] = completion.text.strip()
        self.missing -= 1
        if completion.finish_reason == "length":
            self.finish_reason = "length"

    def summary(self, text: str, probability: float | None) -> Summary:
        """The document's answer."""
        return Summary(
            text=text,
            finish_reason=self.finish_reason,
            totals=self.totals,
            chunks=self.chunks,
            truncated=self.truncated,
            probability=probability,
        )
