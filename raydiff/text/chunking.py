"""Long texts in pieces that fit a prompt: in order, overlapping, without losing a character."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from raydiff.errors import DocumentTooLong, UsageError, invalid
from raydiff.text.segments import Rank, Unit, units
from raydiff.text.tokenizer import Tokenizer

NEARLY_FULL = 0.9
"""Of `Cutter.least_full`: what is left of a text that ends there is nearly as much as can be."""
_COUNTED_EXACTLY = 2**16
_UNITS = 8
"""A chunk has at least this many units, so that cuts and overlaps have places to choose from."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece of a text."""

    begin: int
    end: int
    rendered: Sequence[int]
    """Its tokens, as the caller wants them: alone or in a prompt."""


@dataclass(frozen=True, kw_only=True)
class Cutter:
    """Cuts texts so that each chunk, rendered, has at most `limit` tokens.

    Cuts fall on the last paragraph end in the second half of a chunk, else on the last sentence
    end, else on the last line end, else between words, else between characters. A chunk begins
    with the last sentences of the one before it, as many as fit `overlap_tokens`; with its last
    words where no sentence does.
    """

    tokenizer: Tokenizer
    render: Callable[[str], Sequence[int]]
    """Tokens of a chunk; they may be more than those of its units together."""
    limit: int
    room: int
    """Tokens of text that fit beside whatever `render` adds."""
    overlap_tokens: int = 0
    least_full: float = 0.5
    """How much of a chunk must come before the place where it is cut."""

    def __post_init__(self) -> None:
        if not 0 <= self.overlap_tokens <= self.room // 2:
            expected = f"at least 0 and at most half of max_tokens ({self.room})"
            message = invalid("overlap_tokens", expected=expected, got=self.overlap_tokens)
            raise UsageError(message, "overlap_tokens")

    def chunks(self, text: str) -> Iterator[Chunk]:
        """Cut a text; one without characters is one chunk.

        Raises:
            DocumentTooLong: a single character does not fit.
        """
        source = units(self.tokenizer, text, max(1, self.room // _UNITS))
        held: list[Unit] = []
        repeated = 0
        while True:
            self._fill(held, source)
            whole = not held or (held[-1].end == len(text) and _tokens(held) <= self.room)
            taken, rendered = self._fit(text, held, repeated, whole)
            if 0 < taken <= repeated:
                del held[:repeated]
                repeated = 0
                continue
            end = held[taken - 1].end if held else 0
            yield Chunk(begin=held[0].begin if held else 0, end=end, rendered=rendered)
            if end == len(text):
                return
            repeated = self._overlap(held, taken)
            del held[: taken - repeated]

    def _fill(self, held: list[Unit], source: Iterator[Unit]) -> None:
        tokens = _tokens(held)
        while tokens <= self.room and (unit := next(source, None)) is not None:
            held.append(unit)
            tokens += unit.tokens

    def _fit(
        self, text: str, held: list[Unit], repeated: int, whole: bool
    ) -> tuple[int, Sequence[int]]:
        """How many units make the chunk, and the chunk rendered. Units that alone are too long
        are halved in place. No more than `repeated` units means that nothing new would fit."""
        taken = len(held) if whole else self._cut(held, repeated, _longest(held, self.room))
        while True:
            if 0 < taken <= repeated:
                return repeated, ()
            chunk = text[held[0].begin : held[taken - 1].end] if held else ""
            rendered = self.render(chunk)
            excess = len(rendered) - self.limit
            if excess <= 0:
                return taken, rendered
            if taken == 1:
                held[:1] = self._halves(text, held[0], excess)
                continue
            fewer = taken
            while fewer > 1 and excess > 0:
                fewer -= 1
                excess -= held[fewer].tokens
            taken = self._cut(held, repeated, fewer)

    def _cut(self, held: Sequence[Unit], repeated: int, most: int) -> int:
        """The best number of units up to `most` that goes beyond the repeated ones."""
        least = self.least_full * _tokens(held[:most])
        for rank in (Rank.PARAGRAPH, Rank.SENTENCE, Rank.LINE, Rank.WORD):
            tokens = _tokens(held[:most])
            for taken in range(most, repeated, -1):
                if tokens < least:
                    break
                if held[taken - 1].rank >= rank:
                    return taken
                tokens -= held[taken - 1].tokens
        return most

    def _overlap(self, held: Sequence[Unit], taken: int) -> int:
        """How many of the units taken are to be repeated: whole sentences, if one fits."""
        tokens = 0
        longest = dict.fromkeys((Rank.SENTENCE, Rank.WORD, Rank.NOTHING), 0)
        for count in range(1, taken):
            tokens += held[taken - count].tokens
            if tokens > self.overlap_tokens:
                break
            for rank in longest:
                if held[taken - count - 1].rank >= rank:
                    longest[rank] = count
        return next((count for count in longest.values() if count), 0)

    def _halves(self, text: str, unit: Unit, excess: int) -> list[Unit]:
        if unit.end - unit.begin == 1:
            got = f"{excess} more tokens for the character {text[unit.begin]!r} alone"
            expected = f"prompts of at most {self.limit} tokens"
            raise DocumentTooLong(invalid("text", expected=expected, got=got))
        middle = (unit.begin + unit.end) // 2
        parts = (unit.begin, middle), (middle, unit.end)
        counts = [len(self.tokenizer.encode(text[begin:end])) for begin, end in parts]
        first, second = (
            replace(unit, begin=begin, end=end, tokens=tokens)
            for (begin, end), tokens in zip(parts, counts, strict=True)
        )
        return [replace(first, rank=Rank.NOTHING), second]


def split_into_chunks(
    tokenizer: Tokenizer, text: str, max_tokens: int, overlap_tokens: int = 0
) -> list[str]:
    """Cut `text` into chunks of at most `max_tokens` tokens that cover it in order, as `Cutter`
    does.

    Raises:
        UsageError: `overlap_tokens` is not below half of `max_tokens`.
        DocumentTooLong: a single character has more than `max_tokens` tokens.
    """
    cutter = Cutter(
        tokenizer=tokenizer,
        render=tokenizer.encode,
        limit=max_tokens,
        room=max_tokens,
        overlap_tokens=overlap_tokens,
    )
    return [text[chunk.begin : chunk.end] for chunk in cutter.chunks(text)]


def beginning(tokenizer: Tokenizer, text: str, max_tokens: int) -> str:
    """As much of a text as `max_tokens` tokens hold, up to a good end. Above 65,536 tokens their
    number may be off by one for each sentence.

    Raises:
        DocumentTooLong: a single character has more than `max_tokens` tokens.
    """
    if max_tokens > _COUNTED_EXACTLY:
        end = 0
        for unit in units(tokenizer, text, _COUNTED_EXACTLY // _UNITS):
            max_tokens -= unit.tokens
            if max_tokens < 0:
                break
            end = unit.end
        return text[:end]
    cutter = Cutter(
        tokenizer=tokenizer,
        render=tokenizer.encode,
        limit=max_tokens,
        room=max_tokens,
        least_full=NEARLY_FULL,
    )
    return text[: next(cutter.chunks(text)).end]


def _tokens(held: Sequence[Unit]) -> int:
    return sum(unit.tokens for unit in held)


def _longest(held: Sequence[Unit], room: int) -> int:
    """The most units that have at most `room` tokens together, but at least one."""
    tokens = 0
    for count, unit in enumerate(held):
        tokens += unit.tokens
        if tokens > room:
            return max(1, count)
    return max(1, len(held))
