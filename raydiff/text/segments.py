"""Where a text may be cut: after paragraphs, sentences and lines, and between words at need.

Everything here works on a stretch of the text at a time, so that time is linear in its length
and memory does not depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from raydiff.text.tokenizer import Tokenizer

_WINDOW = 1 << 14
"""Characters that are encoded as one piece at most."""
_BATCH_CHARACTERS = 1 << 16

_CLOSERS = "\"'\u2019\u201d\u00bb)\\]}"
_WIDE_CLOSERS = "\u300d\u300f\u201d\u2019\uff09\u3011\u300b"
_WIDE_ENDS = "\u3002\uff01\uff1f\uff61\u0964\u0965\u06d4\u061f\u1362\u104b\u17d4"
"""Of Chinese and Japanese, Hindi, Urdu and Arabic, Amharic, Burmese, Khmer."""

# Each alternative looks once at each run of its characters: no text makes this quadratic.
_BREAK = re.compile(
    rf"(?<=[.!?\u2026])[{_CLOSERS}]*+\s++"
    rf"|(?<=[{_WIDE_ENDS}])(?![{_WIDE_ENDS}])[{_WIDE_CLOSERS}]*+\s*+"
    r"|\n\s*+"
)
_ABBREVIATION = re.compile(
    r"(?:^|[^\w.])(?:[^\W\d_]|(?:[^\W\d_]\.)+[^\W\d_]|[MDJS]rs?|Ms|Prof|St|[Vv]s|etc|[Cc]f|Nos?"
    r"|[Ff]igs?|[Ee]qs?|[Ss]ec|[Vv]ol|pp|Inc|Ltd|Corp|Co|approx|ca|al|Gen|Col|Sen|Rep|Gov|Rev"
    r"|Hon|Capt|Lt|Sgt|Mt|Ft|usw|bzw|vgl|Nr|Abb|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.$"
)
_LOOK_BACK = 12


class Rank(IntEnum):
    """What ends where a unit ends; the higher, the better to cut there."""

    NOTHING = 0
    WORD = 1
    LINE = 2
    SENTENCE = 3
    PARAGRAPH = 4


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of a text that is cut only if it does not fit by itself."""

    begin: int
    end: int
    tokens: int
    """Of the stretch encoded by itself, with the space before it and without the one after."""
    rank: Rank


_Segment = tuple[int, int, Rank]


def units(tokenizer: Tokenizer, text: str, max_tokens: int) -> Iterator[Unit]:
    """The text in order and without gaps: sentences, and words of those that have more than
    `max_tokens` tokens."""
    for segments in _batches(text):
        counts = _counts(tokenizer, text, segments)
        for (begin, end, rank), tokens in zip(segments, counts, strict=True):
            if tokens <= max_tokens:
                yield Unit(begin, end, tokens, rank)
            else:
                piece = text[begin:end]
                yield from _words(piece, tokenizer.offsets(piece), begin, rank, max_tokens)


def count_tokens(tokenizer: Tokenizer, text: str, stop_above: int | None = None) -> int:
    """Tokens of a text, counted sentence by sentence, which may be off by one for each of them.
    Counting may stop above a bound."""
    total = 0
    for segments in _batches(text):
        total += sum(_counts(tokenizer, text, segments))
        if stop_above is not None and total > stop_above:
            break
    return total


def _counts(tokenizer: Tokenizer, text: str, segments: Sequence[_Segment]) -> list[int]:
    """Tokens of each segment. Most tokenizers join a space with the word after it, so it is
    counted there."""

    def edge(place: int) -> int:
        return place - (0 < place < len(text) and text[place - 1] == " ")

    pieces = [text[edge(begin) : edge(end)] for begin, end, _ in segments]
    return [len(ids) for ids in tokenizer.encode_batch(pieces)]


def _batches(text: str) -> Iterator[list[_Segment]]:
    batch: list[_Segment] = []
    start = 0
    for segment in _windows(text):
        batch.append(segment)
        if segment[1] - start >= _BATCH_CHARACTERS:
            yield batch
            batch, start = [], segment[1]
    if batch:
        yield batch


def _windows(text: str) -> Iterator[_Segment]:
    """Sentences, the long ones in pieces."""
    for begin, end, rank in _sentences(text):
        while end - begin > _WINDOW:
            space = text.rfind(" ", begin + _WINDOW // 2, begin + _WINDOW)
            edge = space if space > 0 else begin + _WINDOW
            yield begin, edge, Rank.WORD if space > 0 else Rank.NOTHING
            begin = edge
        yield begin, end, rank


def _sentences(text: str) -> Iterator[_Segment]:
    begin = 0
    for match in _BREAK.finditer(text):
        end = match.end()
        rank = _rank(text, match.start(), end, match.group())
        if rank > Rank.WORD and end > begin:
            yield begin, end, rank
            begin = end
    if begin < len(text):
        yield begin, len(text), Rank.PARAGRAPH


def _rank(text: str, start: int, end: int, gap: str) -> Rank:
    lines = gap.count("\n")
    if lines > 1:
        return Rank.PARAGRAPH
    if gap[:1] != "\n" or text[start - 1 : start] in ".!?\u2026":
        before = text[max(0, start - _LOOK_BACK) : start]
        goes_on = text[end : end + 1].islower() or _ABBREVIATION.search(before) is not None
        if not goes_on:
            return Rank.SENTENCE
    return Rank.LINE if lines else Rank.WORD


def _words(
    piece: str, spans: Sequence[tuple[int, int]], begin: int, rank: Rank, max_tokens: int
) -> Iterator[Unit]:
    """The piece in units of at most `max_tokens` tokens, cut before white space where there is
    some in the second half of a unit; only a character may have more."""
    first, start = 0, 0
    while len(spans) - first > max_tokens:
        last = _word_edge(piece, spans, first, first + max_tokens)
        stop = spans[last][0] if last < len(spans) else len(piece)
        if stop >= len(piece):
            break
        ends = Rank.WORD if _is_word_edge(piece, stop) else Rank.NOTHING
        yield Unit(begin + start, begin + stop, last - first, ends)
        first, start = last, stop
    yield Unit(begin + start, begin + len(piece), len(spans) - first, rank)


def _word_edge(piece: str, spans: Sequence[tuple[int, int]], first: int, last: int) -> int:
    for edge in range(last, first + (last - first) // 2, -1):
        place = spans[edge][0]
        if place > spans[first][0] and _is_word_edge(piece, place):
            return edge
    while last < len(spans) and not _between_characters(spans, first, last):
        last += 1
    return last


def _is_word_edge(piece: str, place: int) -> bool:
    return piece[place].isspace() or piece[place - 1].isspace()


def _between_characters(spans: Sequence[tuple[int, int]], first: int, edge: int) -> bool:
    """Tokens of one character all have its span; those of none have an empty one."""
    begin = spans[edge][0]
    return begin > spans[first][0] and begin >= spans[edge - 1][1]
